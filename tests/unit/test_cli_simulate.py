"""`arranger simulate` on traces: what it prints, and one line naming file, line and column for what it can't use."""

import json
from pathlib import Path

import pytest

from arranger.cli.inputs.trace_files import read_nodes, read_pods
from arranger.cli.main import main
from arranger.scheduling.experiment import TraceNode, TracePod
from tests.traces import made_up, write_nodes, write_pods

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,96000,393216,8,G2\nn2,32000,262144,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,4000,8192,1,500,\np2,4000,8192,2,1000,G2|T4\n"


@pytest.fixture
def trace(tmp_path: Path) -> list[str]:
    nodes, pods = made_up()
    return [
        *("--trace-nodes", str(write_nodes(tmp_path / "nodes.csv", nodes))),
        *("--trace-pods", str(write_pods(tmp_path / "pods.csv", pods))),
    ]


def simulate(*arguments: str) -> int:
    return main(["simulate", *arguments], prog_name="arranger")


def test_a_table_of_every_run_and_the_means(trace: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*trace, "--policy", "BestFit", "--policy", "BinPack", "--seeds", "2", "--seed", "7") == 0
    told = capsys.readouterr()
    lines = [line.split() for line in told.out.splitlines()]
    assert lines[0][:4] == ["POLICY", "SEED", "PODS", "PLACED"]
    assert [line[:2] for line in lines[1:]] == [
        [policy, seed] for policy in ("BestFit", "BinPack") for seed in ("7", "8", "mean")
    ]
    shares = [float(line[5].rstrip("%")) for line in (lines[1], lines[2])]
    assert float(lines[3][2].rstrip("%")) == pytest.approx(sum(shares) / 2, abs=0.011)
    assert told.err == ""


def test_json_has_the_course_of_each_run(trace: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*trace, "--load", "0.8", "-o", "json", "--policy", "FragmentGradient") == 0
    told = json.loads(capsys.readouterr().out)
    (run,), (mean,) = told["runs"], told["means"]
    assert run["policy"] == mean["policy"] == "FragmentGradient"
    assert run["seed"] == 42
    assert run["allocated_percent"] == mean["allocated_percent"]
    assert 70 < run["arrived_percent"] <= 80
    assert run["curve"][-1]["arrived_percent"] == round(run["arrived_percent"])
    assert run["curve"][-1]["allocated_percent"] <= run["allocated_percent"]
    assert run["pods_per_s"] > 0


def test_a_policy_named_twice_runs_once(trace: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*trace, "--policy", "BestFit", "--policy", "BestFit", "-o", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 1


def test_files_come_back_as_they_were_written(tmp_path: Path) -> None:
    nodes, pods = made_up()
    assert read_nodes(write_nodes(tmp_path / "nodes.csv", nodes)) == nodes
    assert read_pods(write_pods(tmp_path / "pods.csv", pods)) == pods


def test_columns_are_found_by_name_and_others_ignored(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text("\ufeffgpu_milli,num_gpu,qos,memory_mib,cpu_milli,name\n460,1,LS,12288, 6000 ,a\n7,0,BE,1,0,b\n")
    assert read_pods(path) == [TracePod("a", 6000, 12288, 1, 460), TracePod("b", 0, 1, 0, 0)]
    path.write_text("model,gpu,memory_mib,cpu_milli,sn\r\nT4,2,524288,104000,n\r\n")
    assert read_nodes(path) == [TraceNode("n", 104_000, 524_288, 2, "T4")]


@pytest.mark.parametrize(
    ("nodes", "pods", "says"),
    [
        (NODES.replace("96000", "96.5"), PODS,
         "nodes.csv: line 2, column cpu_milli: '96.5' is not a whole number from 0 to 1000000000000"),
        (NODES.replace(",0,", ",-1,"), PODS, "nodes.csv: line 3, column gpu: '-1' is not a whole number from 0 to 64"),
        (NODES.replace(",8,", ",65,"), PODS, "nodes.csv: line 2, column gpu: '65' is not a whole number from 0 to 64"),
        (NODES.replace("n2", "n1"), PODS, "nodes.csv: line 3, column sn: 'n1' is already in line 2"),
        (NODES.replace("n2", ""), PODS, "nodes.csv: line 3, column sn: a name is missing"),
        (NODES + "n3,1\n", PODS, "nodes.csv: line 4, column memory_mib: the line ends before this column"),
        (NODES.replace("gpu,model", "gpus,models"), PODS,
         "nodes.csv: line 1 lacks the columns gpu, model (needed: sn, cpu_milli, memory_mib, gpu, model)"),
        ("", PODS, "nodes.csv: line 1 lacks the columns sn, cpu_milli, memory_mib, gpu, model"),
        (NODES.splitlines()[0] + "\n", PODS, "nodes.csv: nothing follows the first line"),
        (NODES + '"n4', PODS, "nodes.csv: after line 3: unexpected end of data"),
        (NODES.replace("G2", "\udcff"), PODS, "nodes.csv is not a text file in UTF-8"),
        (NODES.replace(",8,G2", ",0,"), PODS, "the nodes of the trace have no GPUs"),
        (NODES, PODS.replace("1,500", "1,1001"),
         "pods.csv: line 2, column gpu_milli: '1001' is not a whole number from 0 to 1000"),
        (NODES, PODS.replace("1,500", "1,0"), "pods.csv: line 2, column gpu_milli: 0 of a GPU; allowed: 1 to 1000"),
        (NODES, PODS.replace("2,1000", "2,500"), "pods.csv: line 3, column gpu_milli: 500 of each of 2 GPUs"),
        (NODES, PODS.replace("name,", "pod,"), "pods.csv: line 1 lacks the column name"),
        (NODES, PODS.splitlines()[0] + "\np,1,1,0,0,\n", "no pod of the trace asks for a GPU"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_that_says_where(
    nodes: str, pods: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes.csv").write_bytes(nodes.encode(errors="surrogateescape"))
    (tmp_path / "pods.csv").write_text(pods)
    status = simulate("--trace-nodes", str(tmp_path / "nodes.csv"), "--trace-pods", str(tmp_path / "pods.csv"))
    told = capsys.readouterr()
    assert (status, told.out) == (2, "")
    assert told.err.startswith("arranger: ")
    assert says in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(("name", "says"), [("absent.csv", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_can_not_be_read_is_named(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    assert simulate("--trace-nodes", str(path), "--trace-pods", str(path)) == 2
    assert f"{path} can't be read: {says}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--load", "0"), "--load"),
        (("--load", "nan"), "--load"),
        (("--load", "11"), "--load"),
        (("--seed", "-1"), "--seed"),
        (("--seeds", "0"), "--seeds"),
        (("--policy", "WorstFit"), "'WorstFit' is not one of 'FragmentGradient', 'BestFit'"),
    ],
)
def test_a_bad_flag_is_named_with_what_is_allowed(
    arguments: tuple[str, str], says: str, trace: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(*trace, *arguments) == 2
    assert says in capsys.readouterr().err

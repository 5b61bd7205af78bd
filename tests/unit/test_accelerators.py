"""Which extended resources are accelerators, and that they are scored, counted and shown like GPUs."""

import pytest

from arranger.model.accelerators import is_accelerator
from arranger.model.config import CycleConfig
from arranger.model.pod import gpus_of
from arranger.projections.derived.work_at_risk import lost_ms
from arranger.replay.reading.gpus import gpu_totals
from arranger.scheduling.policies.base import weight_of
from tests.world import World, shape

ACCELERATORS = [
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.40gb.me", "amd.com/gpu",
    "gpu.intel.com/i915", "gpu.intel.com/xe", "google.com/tpu", "aws.amazon.com/neuron", "habana.ai/gaudi",
    "huawei.com/Ascend910", "huawei.com/Ascend310P", "huawei.com/Ascend910-4c.3cpu", "cambricon.com/mlu",
    "cambricon.com/mlu370", "hygon.com/dcu", "iluvatar.ai/gpu", "metax-tech.com/gpu", "kunlunxin.com/xpu",
    "enflame.com/gcu", "furiosa.ai/npu", "rebellions.ai/ATOM", "qualcomm.com/qaic", "volcano.sh/vgpu-number",
    "xilinx.com/fpga-xilinx_u200_xdma_201830_2-0", "example.com/anything",
]  # fmt: skip
OTHERS = [
    "cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi", "attachable-volumes-aws-ebs",
    "gpu", "kubernetes.io/batch-cpu", "batch.kubernetes.io/x", "rdma/hca", "rdma/ib", "rdma/hca_shared_devices_a",
    "example.com/ib", "example.com/mlnxib", "nvidia.com/hostdev", "nvidia.com/mlnxnics", "mellanox.com/sriov_rdma",
    "intel.com/sriov_netdevice", "openshift.io/mlx_nic", "vpc.amazonaws.com/efa", "vpc.amazonaws.com/pod-eni",
    "smarter-devices/fuse", "github.com/fuse", "squat.ai/video", "devices.kubevirt.io/kvm", "example.com/kvm",
    "sgx.intel.com/epc", "qat.intel.com/generic", "intel.com/qat", "nvidia.com/gpumem", "nvidia.com/gpucores",
    "nvidia.com/gpumem-percentage", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores", "aliyun.com/gpu-mem",
    "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "aws.amazon.com/neuroncore",
    "gpu.intel.com/i915_monitoring", "gpu.intel.com/memory.max", "gpu.intel.com/tiles", "/", "x/", "/gpu",
]  # fmt: skip


@pytest.mark.parametrize("name", ACCELERATORS)
def test_an_accelerator(name: str) -> None:
    assert is_accelerator(name)
    assert weight_of(name, CycleConfig()) == 5
    assert gpus_of([(name, 3), ("cpu", 1000)]) == 3


@pytest.mark.parametrize("name", OTHERS)
def test_something_else(name: str) -> None:
    assert not is_accelerator(name)
    assert gpus_of([(name, 3)]) == 0


def test_an_accelerator_has_the_first_weight_that_names_it() -> None:
    gpus = CycleConfig(weights=(("*/gpu", 5), ("cpu", 1)))
    assert [weight_of(name, gpus) for name in ("amd.com/gpu", "google.com/tpu", "cpu")] == [5, 0, 1]
    own = CycleConfig(weights=(("accelerators", 5), ("google.com/tpu", 2), ("*/gpu", 3)))
    assert [weight_of(name, own) for name in ("amd.com/gpu", "google.com/tpu", "habana.ai/gaudi")] == [3, 2, 5]


@pytest.mark.parametrize("resource", ["google.com/tpu", "huawei.com/Ascend910", "nvidia.com/mig-1g.5gb"])
def test_jobs_on_other_accelerators_lose_work_and_use_devices(resource: str) -> None:
    world = World()
    world.node("n1", **{resource: 8})
    job = world.job("tpus", leader=shape(**{resource: 3}))
    world.cycle()
    world.settle()
    world.pass_time(10)
    assert lost_ms(world.state, job, job.placements, world.now_ms) == 30_000
    totals = gpu_totals(world.state)
    assert (totals.gpus, totals.used, totals.idle) == (8, 3, 5)


def test_devices_of_several_kinds_are_clipped_each_for_itself() -> None:
    """A node that has lost all devices of one kind has those of the other."""
    world = World()
    world.node("n1", **{"nvidia.com/gpu": 4, "nvidia.com/mig-1g.5gb": 4})
    world.pod("other", node="n1", gpus=4)
    world.node("n1", **{"nvidia.com/gpu": 0, "nvidia.com/mig-1g.5gb": 4})
    totals = gpu_totals(world.state)
    assert (totals.gpus, totals.used, totals.idle) == (4, 0, 4)

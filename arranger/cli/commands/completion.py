"""`arranger completion`: the script that completes the command in a shell, and how to install it."""

import click
from click.shell_completion import ShellComplete, get_completion_class

_INSTALL = {
    "bash": 'eval "$(arranger completion bash)"        # in ~/.bashrc; bash 4.4 or newer',
    "zsh": 'eval "$(arranger completion zsh)"         # in ~/.zshrc, after compinit',
    "fish": "arranger completion fish | source         # in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\nTo complete in every new shell:\n" + "\n".join(f"  {line}" for line in _INSTALL.values()))
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes arranger's commands and flags in a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(ctx.find_root().command, {}, "arranger", "_ARRANGER_COMPLETE")
    # The script alone: bash's own class first runs bash to ask its version, and this may be printed elsewhere.
    click.echo(ShellComplete.source(complete))

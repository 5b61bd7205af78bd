"""`arranger completion`: print the shell's completion script, and how to install it."""

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
    # Click's class for bash would also run bash to check its version, but the script may be for another machine.
    click.echo(ShellComplete.source(complete))

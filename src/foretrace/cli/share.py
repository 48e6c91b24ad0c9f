"""Upload a folder of traces to a bucket of the Hugging Face Hub, and print a Perfetto link for each.

  foretrace share traces --bucket profiles                  your own bucket; it is made if there is none
  foretrace share traces --bucket my-team/profiles --prefix run-7 --private
  foretrace share traces --bucket profiles --redact all     without paths, names, command lines, Python stacks
  foretrace share traces --bucket profiles --dry-run        what would be uploaded, and what not

Traces (.json, .json.gz), profiler tables (.txt), foretrace's side files and HTML reports are taken. Nothing is deleted
and nothing replaced unless you ask for it: what is there with the same content is skipped, what is there with another
content stays as it is. It says what it will do and asks first. The token is that of `hf auth login` or HF_TOKEN.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from foretrace.cli import flags
from foretrace.cli.sharing_screen import Screen
from foretrace.cli.streams import say, to_stdout
from foretrace.errors import ForetraceError, InputError
from foretrace.knowledge.sharing import Category, Kind

if TYPE_CHECKING:
    from foretrace.view.sharing import Hub, Item, Plan, Remote, Shared, Standing

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace share``."""
    parser.add_argument("folder", metavar="FOLDER", help="the folder to share, as profiling scripts leave it")
    parser.add_argument("-b", "--bucket", required=True, metavar="[NAMESPACE/]NAME", help="where to; made if need be")
    parser.add_argument("--private", action="store_true", help="make the bucket private, or insist that it is")
    parser.add_argument(
        "--prefix", default="", metavar="FOLDER", help="the folder in the bucket to put everything into"
    )
    parser.add_argument(
        "--redact",
        action="append",
        default=[],
        metavar="WHAT",
        help=f"take out of the copies that are uploaded: {','.join(Category)}, or all",
    )
    parser.add_argument(
        "--include", action="append", default=[], metavar="GLOB", help="only these files, whatever they are; repeatable"
    )
    parser.add_argument("--exclude", action="append", default=[], metavar="GLOB", help="not these files; repeatable")
    parser.add_argument("--snapshots", action="store_true", help="memory snapshots as well")
    parser.add_argument("--force", action="store_true", help="replace files in the bucket that have another content")
    parser.add_argument(
        "--delete", action="store_true", help="delete files in the bucket (below --prefix) that the folder has not"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    flags.add(parser, "dry_run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--json", action="store_true", help="the result as JSON, schema foretrace.share/1")


def run(args: argparse.Namespace) -> int:
    """Share the folder; exit code 2 where not everything of it is in the bucket afterwards."""
    from foretrace.view.sharing import Hub, collect, redacted

    categories = _categories(args.redact)
    plan = collect(
        args.folder, prefix=args.prefix, include=args.include, exclude=args.exclude, snapshots=args.snapshots
    )
    screen = Screen(sys.stderr if args.json else sys.stdout)
    if not plan.items:
        screen.left_out(plan.left_out)
        raise InputError(f"{plan.folder} holds nothing that is shared: no trace, table or report; see --include")
    hub = Hub(args.bucket, tell=say)
    with ExitStack() as stack:
        counts = None
        if categories:
            copies = Path(stack.enter_context(TemporaryDirectory(prefix="foretrace-share-")))
            made = redacted(plan, categories, copies, tell=screen.progress)
            screen.progress("")
            screen.doubtful(made.doubtful)
            plan, counts = made.plan, {str(category): made.counts[category] for category in categories}
        stack.enter_context(hub)
        return _Sharing(args, screen, hub, plan, counts).run()


class _Sharing:
    """One call of the command, after the folder was read: look, say, ask, upload, delete."""

    def __init__(
        self, args: argparse.Namespace, screen: Screen, hub: Hub, plan: Plan, counts: dict[str, int] | None
    ) -> None:
        self.args, self.screen, self.hub, self.plan, self.counts = args, screen, hub, plan, counts
        self.deleted: list[str] = []
        self.spared: Counter[str] = Counter()
        self.created = False
        self.private: bool | None = None

    def run(self) -> int:
        from foretrace.view.sharing.planning import refuse_unsendable

        args, hub = self.args, self.hub
        try:
            remote = hub.look(_prefix(args))
        except ForetraceError as error:
            if not args.dry_run:
                raise
            return self._without_bucket(error)
        self.private = remote.private if remote.exists else args.private
        if args.private and remote.exists and not remote.private:
            raise InputError(
                f"the bucket {hub.bucket} exists and is public; make it private on {hub.page}, or use another one"
            )
        standing = hub.compare(self.plan.items, remote)
        todo = [*standing.new, *(standing.other if args.force else ())]
        surplus = self._surplus(remote) if args.delete else []
        self._say(remote, standing, surplus)
        if args.dry_run:
            return self._finish(standing, 0)
        refuse_unsendable(todo)
        if todo and not self._agreed(f"upload {len(todo)} {_files(len(todo))} to {hub.bucket}"):
            return self._refused()
        try:
            self._upload(remote, todo)
            if surplus:
                self._delete(surplus)
        except ForetraceError as error:
            return self._finish(standing, 2, self._so_far(todo, str(error)))
        except KeyboardInterrupt:
            return self._finish(standing, 130, self._so_far(todo, "interrupted"))
        return self._finish(standing, 2 if standing.other and not args.force else 0)

    def _surplus(self, remote: Remote) -> list[str]:
        from foretrace.view.sharing import surplus

        found = surplus(self.plan, remote.files)
        self.spared = found.spared
        return found.paths

    def _upload(self, remote: Remote, todo: list[Item]) -> None:
        if not remote.exists:
            self.private = self.hub.create(private=self.args.private)
            self.created = True
            if self.args.private and not self.private:
                raise InputError(
                    f"the bucket {self.hub.bucket} is public although it was to be private; nothing is uploaded"
                )
        self.hub.upload(todo, lambda done, whole: self.screen.progress(f"uploading, {done} of {whole} files are up"))
        self.screen.progress("")

    def _delete(self, surplus: list[str]) -> None:
        self.screen.deleting(surplus, self.hub.bucket)
        if self._agreed(f"delete {len(surplus)} {_files(len(surplus))} from {self.hub.bucket}, for good"):
            self.hub.delete(surplus)
            self.deleted = surplus

    def _say(self, remote: Remote, standing: Standing, surplus: list[str]) -> None:
        self.screen.plan(
            self.plan,
            standing,
            bucket=self.hub.bucket,
            private=self.private,
            exists=remote.exists,
            force=self.args.force,
            counts=self.counts,
        )
        self.screen.spared(self.spared, self.hub.bucket)
        if self.args.dry_run and surplus:
            self.screen.deleting(surplus, self.hub.bucket)

    def _agreed(self, what: str) -> bool:
        if self.args.yes:
            return True
        if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
            raise InputError(f"there is no terminal to ask at whether to {what}; add --yes")
        self.screen.progress("")
        print(f"{what[0].upper()}{what[1:]}? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def _refused(self) -> int:
        say("nothing was uploaded")
        return 2

    def _without_bucket(self, error: ForetraceError) -> int:
        """A dry run needs no token and no network: what stays unknown is said."""
        from foretrace.view.sharing import Standing

        self.screen.plan(
            self.plan,
            None,
            bucket=self.hub.bucket,
            private=self.args.private,
            exists=None,
            force=self.args.force,
            counts=self.counts,
        )
        say(f"the bucket was not looked at: {error}")
        return self._finish(Standing(self.plan.items, [], []), 0, str(error))

    def _so_far(self, todo: list[Item], why: str) -> str:
        self.screen.progress("")
        up = len(self.hub.uploaded)
        if up == len(todo):
            sentence = f"{why} (all {up} files are up)" if todo else why
        else:
            sentence = f"{why} ({up} of {len(todo)} files are up; the same command goes on where it ended)"
        say(sentence)
        return sentence

    def _finish(self, standing: Standing, code: int, error: str | None = None) -> int:
        shared = self._shared(standing, error)
        if self.args.json:
            from foretrace.report.json import to_json

            to_stdout(to_json(shared))
        elif not self.args.dry_run:
            self.screen.outcome(shared)
        if error is None and code == 2:
            others = len(standing.other)
            stay, them = ("stays as it is", "it") if others == 1 else ("stay as they are", "them")
            say(f"{others} {_files(others)} with another content {stay} in the bucket; --force replaces {them}")
        return code

    def _shared(self, standing: Standing, error: str | None) -> Shared:
        from foretrace.model.share import LeftOutFile, Shared, SharedFile, State

        up = {item.path for item in self.hub.uploaded}
        same, other = ({item.path for item in items} for items in (standing.same, standing.other))

        def state(path: str) -> State:
            if path in up:
                return "replaced" if path in other else "uploaded"
            if path in same:
                return "unchanged"
            return "conflict" if path in other and not self.args.force else "waiting"

        files = [
            SharedFile(
                path=item.path,
                kind=str(item.kind),
                bytes=item.bytes,
                state=state(item.path),
                url=self.hub.url(item.path),
                perfetto=self._perfetto(item),
            )
            for item in self.plan.items
        ]
        return Shared(
            folder=str(self.plan.folder),
            bucket=self.hub.bucket,
            page=self.hub.page,
            private=self.private,
            created=self.created,
            dry_run=self.args.dry_run,
            files=files,
            left_out=[LeftOutFile(path=one.path, reason=one.reason) for one in self.plan.left_out],
            deleted=self.deleted,
            redacted=self.counts,
            error=error,
        )

    def _perfetto(self, item: Item) -> str | None:
        from foretrace.view.links import perfetto_link

        if item.kind is not Kind.TRACE or self.private is not False:
            return None
        try:
            return perfetto_link(self.hub.url(item.path))
        except InputError:  # a Hub of one's own under http, which the UI may not fetch from
            return None


def _categories(words: list[str]) -> list[Category]:
    asked = [part.strip() for word in words for part in word.split(",")]
    unknown = [part for part in asked if part not in (*Category, "all")]
    if unknown:
        raise InputError(f"--redact {unknown[0]!r} is not known; it takes {', '.join(Category)}, or all")
    return [category for category in Category if category in asked or "all" in asked]


def _prefix(args: argparse.Namespace) -> str:
    from foretrace.view.sharing import tidy_prefix

    return tidy_prefix(args.prefix)


def _files(number: int) -> str:
    return "file" if number == 1 else "files"

"""Step 4: one task becomes one result."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from weft.core.payload import decode, encode
from weft.core.task import Result
from weft.errors import HandlerError, JournalError, UnstorableError
from weft.expressions.template import with_secrets
from weft.handlers.contract import HandlerKind, LargeOutput, NativeContext, deadline_after
from weft.handlers.outcome import Completed, Failed, Outcome, classify, completed, timed_out
from weft.handlers.secrets import lookup
from weft.logs import RateLimitedLog
from weft.masking import Mask
from weft.open_files import OutOfFilesError, is_exhausted
from weft.validator.asker import current_asker
from weft.worker.call import AttemptLostError, Caller, HandlerCall
from weft.worker.code_change import last_code
from weft.worker.facts import FactsReader, read_facts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from weft.core.task import Task
    from weft.handlers.registry import Registry
    from weft.ports import Ports
    from weft.worker.logs import LogWriter


log = logging.getLogger("weft.worker")

_PAUSE_AFTER_ERROR_SECONDS = 1.0
# Larger outputs are searched for secrets in a thread: a megabyte of escapes takes a third of a second.
_MASKED_ON_LOOP_BYTES = 64 * 1024
_NO_SECRETS = Mask(())
# A config of this size is checked in a few milliseconds, whichever handler that ships with weft it is for.
BOUND_AT_ONCE_BYTES = 64 * 1024

T = TypeVar("T")


class Runner:
    """Runs tasks of any handler, each where its kind may run."""

    def __init__(
        self,
        ports: Ports,
        registry: Registry,
        caller: Caller,
        *,
        worker: str,
        mask: Mask = _NO_SECRETS,
        logs: LogWriter | None = None,
    ) -> None:
        """``mask``: of every secret of this process, for errors: an error may hold any of them."""
        self._ports = ports
        self._mask = mask
        self._logs = logs
        self._registry = registry
        self._caller = caller
        self._worker = worker
        self._log = RateLimitedLog(log, now=ports.clock.monotonic)
        # Of the handlers that ship with weft: nobody else's code may run on the loop.
        self._instant = registry.shipped(HandlerKind.INSTANT)

    def handlers(self) -> list[str]:
        """Name the handlers whose tasks it can run."""
        return self._registry.names()

    def functions(self) -> list[str]:
        """Name what ``python`` may call: ``module:name``, or ``module:*`` for all that a module offers."""
        return sorted({*self._registry.functions(), *self._caller.functions()})

    def __contains__(self, handler: object) -> bool:
        """True if it can run tasks of a handler: what it cannot run is left for others."""
        return handler in self._instant or (isinstance(handler, str) and self._registry.knows(handler))

    def __iter__(self) -> Iterator[str]:
        return iter(self.handlers())

    def instant(self, task: Task) -> bool:
        """True if the task's handler returns at once, without a wait."""
        return task.handler in self._instant

    def is_immediate(self, task: Task) -> bool:
        """True if the whole attempt needs no wait: nothing is read from the journal, or written to it."""
        return self.instant(task) and (
            len(task.config) <= self._ports.inline_bytes
            if task.config_blob is None
            else task.config_bytes > 0
        )

    def weight(self, task: Task) -> int:
        """Return what the config of an attempt takes in memory while it is in hand; 0: it is over at once."""
        return 0 if self.is_immediate(task) else task.config_weight

    def run_instant(self, task: Task, started_at: int) -> Result:
        """Run a task that cannot block: its output is its config, byte for byte, with secrets hidden.

        A config that lies in the journal is the output as it lies there, and is not read.
        """
        if task.secrets or task.granted:
            try:
                _secrets(task)
            except HandlerError as error:
                # The output hides the secret, so nobody would notice that the secret is missing.
                return self._result(task, started_at, classify(error, user_code=False))
        # Keywords count twice: beyond 30, Python packs them into a dict.
        return Result(
            task.execution_id,
            task.generation,
            task.node_id,
            task.attempt,
            digest=task.digest,
            failures=task.failures,
            losses=task.losses,
            worker=self._worker,
            queued_at=task.queued_at,
            started_at=started_at,
            finished_at=started_at,
            output=task.config if task.config_blob is None else None,
            blob=task.config_blob,
            output_bytes=task.config_bytes,
            cache_key=task.cache_key,
            signature=task.signature,
        )

    async def whole(self, task: Task) -> Task:
        """Return the task with its config: a large config lies in the journal."""
        name = task.config_blob
        if name is None:
            return task
        blobs = await _when_reachable(lambda: self._ports.journal.blobs([name]))
        return replace(task, config=blobs[name], config_blob=None)

    async def drop_config(self, task: Task) -> None:
        """Remove the stored config of an attempt that has ended: every attempt has one of its own."""
        if task.config_blob is not None:
            # What is left behind, the sweep removes in time.
            with suppress(JournalError):
                await self._ports.journal.drop_blobs([task.config_blob])

    async def run(self, task: Task, started_at: int) -> Result:
        """Run a task to its result. Cancelling this asks the handler to stop."""
        try:
            outcome = await self._outcome_given_files(task)
        except AttemptLostError as loss:
            return self._result(task, started_at, None, charged=loss.charged)
        except Exception as error:
            outcome = classify(error, user_code=False)
        if task.secrets or task.granted or isinstance(outcome, Failed):
            outcome = await self._masked(outcome, task)
        return self._result(task, started_at, outcome)

    async def _outcome_given_files(self, task: Task) -> Outcome:
        """Call the task's handler, as often as it takes until there is a file for the call.

        The attempt keeps its worker slot and its lease meanwhile, and its timeout begins anew: the node has
        done nothing wrong. A worker without files so takes no more work than it has slots.
        """
        while True:
            try:
                return await self.outcome(task)
            except OutOfFilesError as error:
                self._ports.out_of_files(error.where)
                self._log.warning("files.exhausted", reason=error.where, problem=str(error))
                await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)
                if error.began:
                    # The same attempt must not have its effect twice; the pause holds up the next one, too.
                    raise AttemptLostError(str(error), charged=False) from None

    async def settle_logs(self, task: Task) -> None:
        """Return when the lines of an attempt that has ended are in the journal, or soon."""
        if self._logs is not None and self._logs.has(task):
            await self._logs.settle(task)

    def end_logs(self, task: Task) -> None:
        """Note that an attempt has ended without a result: its lines are written with the next ones."""
        if self._logs is not None:
            self._logs.end(task)

    async def small(self, result: Result) -> Result:
        """Return a result that may travel: a large output is in the journal before anybody refers to it."""
        output = result.output
        if output is None or len(output) <= self._ports.inline_bytes:
            return result
        name = await _when_reachable(lambda: self._ports.journal.put_blob(output))
        return replace(result, output=None, blob=name, output_bytes=len(output))

    async def _masked(self, outcome: Outcome, task: Task) -> Outcome:
        """Mask the secrets that a handler was given, wherever it repeats them, and in an error all others."""
        try:
            # Read again: the content of a secret's file may have changed since this process started.
            granted = Mask(_secrets(task).values())
        except HandlerError:
            granted = _NO_SECRETS  # it was never given one
        if isinstance(outcome, Failed):
            error = self._mask.value(granted.value(outcome.error))
            return Failed(error, outcome.retry_after_seconds)
        mask_output = partial(
            _masked_output,
            outcome,
            granted,
            target=task.handler,
            max_bytes=self._ports.bounds.max_payload_bytes,
        )
        is_large = len(outcome.output) > _MASKED_ON_LOOP_BYTES
        return await asyncio.to_thread(mask_output) if is_large else mask_output()

    def facts(self, task: Task) -> FactsReader:
        """Return what reads the facts that a context shows, as soon as the journal can be read."""
        journal = self._ports.journal
        read = partial(_when_reachable, partial(read_facts, task, journal))
        return FactsReader(task, self._ports.rows_at_hand, read)

    async def _call_of(self, task: Task) -> HandlerCall:
        """Return the call of a user's function for a task, with its secrets filled in."""
        return HandlerCall(
            handler=task.handler,
            config=await self._config_with_secrets(task) if task.secrets else task.config,
            execution_id=task.execution_id,
            node_id=task.node_id,
            generation=task.generation,
            attempt=task.attempt,
            timeout_seconds=task.timeout_seconds,
            # After a loss it runs alone, so that the guilty one is charged and no neighbour.
            alone=task.losses > 0 or (task.attempt > 1 + task.failures and not task.look),
            facts=self.facts(task),
            secrets=_secrets(task),
            namespace=task.namespace,
            last_code=partial(last_code, task, self._ports.journal) if task.attempt > 1 else None,
            traceparent=self._traceparent(task),
            look=task.look,
        )

    async def outcome(self, task: Task) -> Outcome:
        """Call the task's handler; raises AttemptLostError where its end is unknown."""
        max_bytes = self._ports.bounds.max_payload_bytes
        is_large = len(task.config) > BOUND_AT_ONCE_BYTES
        if self._registry.get(task.handler).kind is HandlerKind.USER:
            return await self._caller.call(await self._call_of(task))
        context = NativeContext(
            execution_id=task.execution_id,
            node_id=task.node_id,
            generation=task.generation,
            attempt=task.attempt,
            deadline=deadline_after(self._ports.clock.now(), task.timeout_seconds),
            way_out=self._ports.outbound,
            traceparent=self._traceparent(task),
            tracing=self._ports.tracing,
            look=task.look,
        )
        current_asker.set(task.execution_id)
        if not is_large:
            invocation = self._registry.bind(task.handler, self._config(task), context)
        else:
            # In a thread: it may wait for the process that checks the config.
            config = await asyncio.to_thread(self._config, task)
            invocation = await asyncio.to_thread(self._registry.bind, task.handler, config, context)
        try:
            async with asyncio.timeout(task.timeout_seconds) as limit:
                output = await invocation.call()
                if isinstance(output, LargeOutput):
                    return await context.outbound.off_loop(
                        completed, output.value, target=task.handler, max_bytes=max_bytes, in_pieces=True
                    )
                if is_large:
                    # A handler with a large config often returns a large output.
                    return await asyncio.to_thread(
                        completed, output, target=task.handler, max_bytes=max_bytes
                    )
                return completed(output, target=task.handler, max_bytes=max_bytes)
        except TimeoutError as error:
            return timed_out(task.timeout_seconds) if limit.expired() else classify(error, user_code=False)
        except OSError as error:
            if is_exhausted(error):
                # Before its first call: once that is sent, the handler says so itself.
                raise OutOfFilesError("call") from None
            raise

    def _traceparent(self, task: Task) -> str | None:
        """Return the place in a trace that what the attempt calls belongs to."""
        tracing = self._ports.tracing
        return task.traceparent if tracing is None else tracing.of_attempt(task)

    async def _config_with_secrets(self, task: Task) -> bytes:
        """Return the text of a config with its secrets filled in."""
        max_bytes = self._ports.bounds.max_payload_bytes

        def fill() -> bytes:
            return encode(self._config(task), max_bytes=max_bytes)

        return fill() if len(task.config) <= BOUND_AT_ONCE_BYTES else await asyncio.to_thread(fill)

    def _config(self, task: Task) -> object:
        config = decode(task.config)
        return with_secrets(config, task.secrets, lookup) if task.secrets else config

    def _result(
        self, task: Task, started_at: int, outcome: Outcome | None, *, charged: bool = True
    ) -> Result:
        done = outcome if isinstance(outcome, Completed) else None
        failed = outcome if isinstance(outcome, Failed) else None
        return Result(
            execution_id=task.execution_id,
            generation=task.generation,
            node_id=task.node_id,
            attempt=task.attempt,
            digest=task.digest,
            failures=task.failures,
            losses=task.losses,
            worker=self._worker,
            queued_at=task.queued_at,
            started_at=started_at,
            finished_at=started_at,
            output=None if done is None else done.output,
            error=None if failed is None else failed.error,
            retry_after_seconds=None if failed is None else failed.retry_after_seconds,
            cache_key=task.cache_key if done else None,
            lost=outcome is None,
            charged=charged,
            signature=task.signature,
        )


async def _when_reachable(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call to the journal until it answers; the loss of the attempt's lease cancels the call.

    The worker holds the lease meanwhile: an attempt is not lost because PostgreSQL is away.
    """
    while True:
        try:
            return await step()
        except UnstorableError:
            raise
        except JournalError as error:
            log.warning("journal.unavailable", extra={"error": str(error)})
            await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)


def _masked_output(outcome: Completed, mask: Mask, *, target: str, max_bytes: int) -> Outcome:
    # As text first: strings of JSON are only escaped once more, and most outputs hold no secret.
    if not mask.spans(outcome.output.decode()):
        return outcome
    return completed(mask.value(decode(outcome.output)), target=target, max_bytes=max_bytes)


def _secrets(task: Task) -> dict[str, str]:
    """Return the secrets that a task was granted, by name; raises BadConfig if one is missing."""
    if not task.secrets and not task.granted:
        return {}
    names = {part.name for slot in task.secrets for part in slot.parts if not isinstance(part, str)}
    return {name: lookup(name) for name in sorted(names.union(task.granted))}

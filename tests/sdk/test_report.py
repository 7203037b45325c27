from __future__ import annotations

from tests.cli.engine import execution, node

from weft.sdk.report import report


def test_a_completed_execution_is_one_line() -> None:
    text = report(
        execution("COMPLETED", node("a", "COMPLETED"), node("b", "SKIPPED", reason="condition")),
        elapsed_seconds=2.14,
    )
    assert text == "COMPLETED after 2.1 s: 1 completed, 1 skipped"


def test_a_failed_one_says_what_failed_why_and_what_did_not_run_for_it() -> None:
    error = {"code": "handler_error", "message": "ValueError: card\ndeclined", "retryable": True}
    text = report(
        execution(
            "FAILED",
            node("charge", "FAILED", error=error, attempt=4),
            node("ship", "SKIPPED", reason="upstream_failed", cause="charge"),
            node("notify", "SKIPPED", reason="upstream_failed", cause="charge"),
            *(node(f"p{index}", "CANCELLED", reason="fail_fast", cause="charge") for index in range(9)),
            error={"code": "node_failed", "message": "charge failed", "node": "charge"},
        ),
        elapsed_seconds=3,
    )
    assert text.splitlines() == [
        "FAILED after 3.0 s: 1 failed, 2 skipped, 9 cancelled",
        "  failed: charge (attempt 4): handler_error: ValueError: card declined",
        "  skipped (upstream_failed, charge): ship, notify",
        "  cancelled (fail_fast, charge): p0, p1, p2, p3, p4, p5 and 3 more",
    ]


def test_a_reason_that_is_no_nodes_is_told_too() -> None:
    error = {"code": "deadline_exceeded", "message": "not done after 3 s", "retryable": False}
    text = report(
        execution("FAILED", node("a", "CANCELLED", reason="deadline"), error=error), elapsed_seconds=3
    )
    assert "  deadline_exceeded: not done after 3 s" in text
    assert "  cancelled (deadline): a" in text


def test_of_a_thousand_failures_the_first_twenty_are_listed() -> None:
    error = {"code": "timeout", "message": "", "retryable": True}
    text = report(
        execution("FAILED", *(node(f"n{index}", "FAILED", error=error) for index in range(1000))),
        elapsed_seconds=1,
    )
    assert len(text.splitlines()) == 22
    assert text.endswith("… and 980 more failed")


def test_the_first_failures_are_told_with_their_tracebacks() -> None:
    trace = 'Traceback (most recent call last):\n  File "flows.py", line 3, in charge\nKeyError: \x1b[2J'
    error = {"code": "handler_error", "message": "KeyError", "details": {"traceback": trace}}
    text = report(
        execution("FAILED", *(node(f"n{index}", "FAILED", error=error) for index in range(5))),
        elapsed_seconds=1,
    )
    assert text.count('      File "flows.py", line 3, in charge\n') == 3
    assert "\x1b" not in text


def test_the_command_that_retries_a_failed_execution_is_told_last() -> None:
    error = {"code": "timeout", "message": "", "retryable": True}
    failed = execution("FAILED", node("a", "FAILED", error=error))
    assert report(failed, elapsed_seconds=1, retry="weft retry 7").endswith("\n  retry: weft retry 7")
    done = execution("COMPLETED", node("a", "COMPLETED"))
    assert "retry" not in report(done, elapsed_seconds=1, retry="weft retry 7")

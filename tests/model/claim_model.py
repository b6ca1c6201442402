"""An executable model of the claim protocol (`onceq.claim`, `onceq.store`, `onceq.outbox`), explored exhaustively.

Deliveries of one job's messages race on one record and one outbox entry. The world is unkind: crashes, lost responses,
writes that land late, leases that pass while the claimant lives (zombies), renewals whose outcome stays unknown while
the job goes on, failures with back-off, redrives from the DLQ, duplicates, expiry and TTL. Recovery sweeps, people
decide, a relay sends. Every reachable state is checked, and that no pending entry is ever out of reach of being sent; a
violation prints the shortest trace. From the folder `tests`::

    python -m model.claim_model --job once --retries 1 --resolves 1

`parts` has what the model is made of, `attempts` what deliveries do, `outbox` who sends, `world` everybody else, and
`promises` what must hold. The job runs a step (``--job step``), an at-most-once step (``once``) or none (``bare``), is
at-most-once itself (``--amo``), may end while its step is under way (``--parallel``), and may commit its completion
together with an entry (``--commit atomic``). The numbers bound how often the world is unkind.

Explored without a violation, in states (10,000 to 20,000 take a second; the tests take a slice of each)::

    325,435  --renewals 1
    499,371  --workers 1 --zombies --renewals 2 --late 2
    141,145  --aging
    753,707  --job once --retries 1 --resolves 1 --redrives 0
    556,180  --job once --zombies --redrives 0
     93,633  --job once --parallel --retries 1 --redrives 0
    127,896  --job once --aging --resolves 1 --sweeps 0 --redrives 0 --crashes 0
    260,234  --job once --workers 1 --renewals 1 --retries 1 --resolves 1
    224,078  --amo --job bare --retries 1 --resolves 1
    191,171  --job bare --commit atomic --conflicts 1
    118,471  --amo --job bare --commit atomic --conflicts 1 --resolves 1 --redrives 0
     80,665  --job once --commit atomic --workers 1 --retries 1 --resolves 1 --conflicts 1
     34,380  --job bare --commit atomic --workers 1 --failures 2 --late 2
     39,320  --job bare --commit atomic --workers 1 --failures 1 --late 2 --delayed --zombies

These switches weaken the protocol on purpose, to show what each rule is for; the explorer must then find a violation::

    --cas claimant         UNCHANGED compares the claimant alone
    --free loose           FREE frees every record by age, not only those that ended
    --recognise version    a refused write is taken for ours by claimant and version alone, not by the whole record
    --follow no            a refusal that shows an earlier write of ours counts as a lost claim (no rule 5)
    --sweep-token no       recovery writes no token of its own
    --sweep blind          recovery's write asks only whether the job is still processing
    --started never        an at-most-once step begins without its mark
    --open-step unseen     a stale record with an open step is treated as any other; the attempt alone looks at the mark
    --open-step rerun      and so does the attempt: it runs the step again
    --retry-mark kept      a Retry out of the step leaves its mark
    --ends as-is           a job that ends while its step is under way is completed or released
    --expiry kept          TTL may delete a record that has not ended although a step of it has a mark
    --resolve version      a person's decision asks for the version alone
    --resolve status       it asks only whether the record is one to decide about
    --resolve blind        it asks nothing
    --reopen kept          a person's retry keeps attempts and open marks
    --commit separate      the entry is put before or after the completion, not with it
    --completion lost      an end that finds our own completion in its way counts as a lost claim
    --conflict retry       a failed condition of the user's gives an at-most-once job back, as if it had asked for it
    --mark-first           an entry is marked sent before it is sent
    --relay takes          the relay takes an entry out of the index before it sends it
    --note blind           a failed try is noted whatever has become of the entry

Change this model first, then the code.
"""

from __future__ import annotations

import argparse
from collections import deque
from dataclasses import fields
from typing import TYPE_CHECKING, get_args, get_type_hints

from model.attempts import work
from model.parts import Exploration, Options, State, Worker
from model.promises import violations
from model.world import world

if TYPE_CHECKING:
    from collections.abc import Sequence

NEVER_SENT = "G8: an entry is pending that can never be sent"


def explore(opt: Options, *, until: Sequence[str] | None = None) -> Exploration:
    """Visit every state, or stop as soon as each violation named in ``until`` is found."""
    first = State(None, tuple(Worker("claim", number + 1) for number in range(opt.workers)))
    parents: dict[State, tuple[str, State] | None] = {first: None}
    arrivals: list[tuple[State, State]] = []
    queue, result = deque([first]), Exploration()
    while queue and not (until and set(until) <= set(result.found)):
        state = queue.popleft()
        moves = [move for index in range(opt.workers) for move in work(opt, state, index)]
        for label, after in (*moves, *world(opt, state)):
            broken = list(violations(opt, state, after))
            for rule in broken:
                if rule not in result.found:
                    result.found[rule] = [*trace(parents, state), label]
            if broken:
                continue
            if after not in parents:
                parents[after] = (label, state)
                queue.append(after)
            if after.entry is not None:
                arrivals.append((state, after))
    result.states = len(parents)
    if not queue and (stuck := never_sent(parents, arrivals)) is not None:
        result.found[NEVER_SENT] = trace(parents, stuck)
    return result


def never_sent(parents: dict[State, tuple[str, State] | None], arrivals: Sequence[tuple[State, State]]) -> State | None:
    """Return the first state with a pending entry from which no moves lead to one where it is sent."""
    sources: dict[State, list[State]] = {}
    for before, after in arrivals:
        sources.setdefault(after, []).append(before)
    hopeful = {state for state in parents if state.entry is not None and state.entry.status == "sent"}
    queue = deque(hopeful)
    while queue:
        for before in sources.get(queue.popleft(), ()):
            if before not in hopeful:
                hopeful.add(before)
                queue.append(before)
    return next((state for state in parents if state.entry is not None and state not in hopeful), None)


def trace(parents: dict[State, tuple[str, State] | None], state: State) -> list[str]:
    """Return the moves that lead to a state."""
    labels: list[str] = []
    while (parent := parents[state]) is not None:
        label, state = parent
        labels.append(label)
    return labels[::-1]


def options(arguments: Sequence[str] | None = None) -> Options:
    """Read options as the command line gives them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    types = get_type_hints(Options)
    for option in fields(Options):
        name = "--" + option.name.replace("_", "-")
        if types[option.name] is bool:
            parser.add_argument(name, action="store_true")
        elif types[option.name] is int:
            parser.add_argument(name, type=int, default=option.default, help=f"{option.default} if not given")
        else:
            parser.add_argument(name, choices=get_args(types[option.name]), default=option.default)
    return Options(**vars(parser.parse_args(arguments)))


def main() -> int:
    """Explore what the command line asks for."""
    result = explore(options())
    print(f"{result.states} states, {len(result.found)} kinds of violation")
    for broken, labels in result.found.items():
        print(f"  {broken}:\n    {' -> '.join(labels)}")
    return 1 if result.found else 0


if __name__ == "__main__":
    raise SystemExit(main())

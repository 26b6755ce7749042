"""Pulls: a state machine with named outcomes.

    request ──► admission ──► reading ──┬─ Found ──────────────────────────────┐
                    │            ▲      ├─ Moved, Skipped, Deleted ────────────┼──► answering
                    ▼            │      └─ NotFound ──┬─ may not be held ──────┘
                 refused         │                    └─ may be held ──► holding
                                 └────── woken, or its time has ended ──────┘

- `request.py`: a pull, the stream of pulls that it belongs to, and the plan that all of them share.
- `admission.py`: decodes a pull and checks it. A refused pull raises CommandError, which the dispatcher
  answers.
- `reading.py`: looks into the queue once and returns one of the outcomes of `outcomes.py`.
- `holding.py`: holds a pull that found nothing (long polling) and looks again when it is woken. The held
  pulls themselves are in `held_pulls.py`.
- `cold_flow_control.py`: before the reading, slows down groups that read too many cold messages.
  `cold_groups.py` counts these and has the thresholds, which `cold_strategies.py` adapts.
- `answering.py`: writes the response to an outcome.

`processors/pull.py` takes a pull through these states. `service.py` owns the state that all pulls share. No
value is changed after it was made. The one object that changes is a held pull's `HeldState`.
"""

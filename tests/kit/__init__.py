"""What the tests share: a clock that stands still, events, a world on locked moto, and faults at the seams."""

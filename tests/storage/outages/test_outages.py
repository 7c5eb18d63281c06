"""The laws of outages hold in drawn histories."""

from . import laws


def test_no_loss_is_silent_and_no_notice_is_needless() -> None:
    met = laws.play_many(100, 1)
    assert min(met["outages"], met["write_outages"]) > 3, met
    assert met["lookups_unanswered"] > 500

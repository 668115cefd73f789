//! The cases without which a run shows nothing.

use crate::checker::{EnvoyFindings, Findings};

/// The cases that did not come up. A short run needs some of them, and a long one all; days end only if the servers' clock can be
/// set, and questions go through Envoy only if there is one.
pub(super) fn missing(
    found: &Findings,
    is_long: bool,
    has_clock: bool,
    has_envoy: bool,
) -> Vec<String> {
    let (once, lines, bans) = (&found.once, &found.lines, &found.banned);
    let through_envoy = match has_envoy {
        true => found.through_envoy,
        false => EnvoyFindings::ONE_OF_EACH,
    };
    let in_any = [
        (found.known, "no denial was known"),
        (found.leased.leased, "nothing was spent from a block"),
        (once.replayed, "no id was replayed"),
        (
            found.replaced.by_another,
            "no charge was decided by a quota in place of another",
        ),
        (through_envoy.passed, "no request passed through Envoy"),
        (through_envoy.refused, "none was refused there"),
    ];
    let in_a_long_one = [
        (through_envoy.undecided, "Envoy heard of no failure"),
        (through_envoy.cut_off, "no question of Envoy's was cut off"),
        (once.charged_again, "no id was sent after its replays"),
        (once.from_another, "no id was sent by two processes"),
        (
            once.after_unheard,
            "no request with an id came again after its answer was lost",
        ),
        (
            once.after_returned,
            "no request with an id came again after its charge was given back",
        ),
        (
            found.settled_in_line,
            "no service settled a request of a line",
        ),
        (found.grants.in_part, "nothing was granted in part"),
        (found.grants.lost, "no answer to a grant was lost"),
        (
            if has_clock { found.days } else { 1 },
            "no day ended under a quota of days",
        ),
        (
            found.replaced.by_another_algorithm,
            "no charge was decided by another algorithm in place of a bucket",
        ),
        (found.warming.cold, "no budget was cold"),
        (found.warming.strict, "no budget that warms up was judged"),
        (found.rated.strict, "no budget of another rate was judged"),
        (found.held.stood, "no request waited for a place"),
        (bans.begun, "no strikes banned a caller"),
        (bans.by_hand, "no operator banned a caller"),
        (bans.lengthened, "no ban by hand made another longer"),
        (bans.kept_longer, "no ban by hand found a longer one"),
        (bans.pardoned, "no pardon ended a ban"),
        (
            bans.by_response,
            "no request found a strike by a response that surely had arrived",
        ),
        (lines.full, "no line was full"),
        (lines.stopped, "no request waited in a line that was closed"),
        (lines.closed, "no request found a closed line"),
    ];
    let long = in_a_long_one.into_iter().filter(|_| is_long);
    let missing = in_any
        .into_iter()
        .chain(long)
        .filter(|(times, _)| *times == 0);
    missing
        .map(|(_, what)| format!("{what}: that shows nothing"))
        .collect()
}

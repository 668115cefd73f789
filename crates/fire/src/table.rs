//! The figures of runs, as a table.

use tollgate_fire::Report;

/// The lines of a table of these runs.
pub(crate) fn table(reports: &[Report]) -> Vec<String> {
    let rows: Vec<_> = reports
        .iter()
        .map(|report| (report.topology.name(), columns(report)))
        .collect();
    let Some((_, first)) = rows.first() else {
        return Vec::new();
    };
    let names = first.iter().map(|(name, _)| *name);
    let head = line("servers", names);
    let rule = line("---", first.iter().map(|_| "---"));
    let body = rows.iter().map(|(servers, columns)| {
        let figures = columns.iter().map(|(_, figure)| figure.as_str());
        line(servers, figures)
    });
    [head, rule].into_iter().chain(body).collect()
}

fn line<'a>(first: &'a str, others: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<_> = [first].into_iter().chain(others).collect();
    format!("| {} |", cells.join(" | "))
}

/// Each figure under its name.
fn columns(report: &Report) -> Vec<(&'static str, String)> {
    let found = &report.findings;
    vec![
        ("faults", report.faults.values().sum::<u32>().to_string()),
        ("not done", report.undone.len().to_string()),
        ("decisions", found.decided.to_string()),
        ("denied", (found.decided - found.admitted).to_string()),
        ("of that known", found.known.to_string()),
        ("failed", found.failed.to_string()),
        ("unknown", found.unknown.to_string()),
        ("by a share", found.by_share.to_string()),
        ("over HTTP", found.over_http.to_string()),
        ("through Envoy", found.through_envoy.passed.to_string()),
        ("refused there", found.through_envoy.refused.to_string()),
        ("undecided", found.through_envoy.undecided.to_string()),
        ("cut off", found.through_envoy.cut_off.to_string()),
        (
            "of that decided",
            found.through_envoy.decided_in_vain.to_string(),
        ),
        ("settled", found.settled.to_string()),
        ("of these in lines", found.settled_in_line.to_string()),
        ("retries kept", found.promises.to_string()),
        ("days begun", found.days.to_string()),
        ("held", found.held.held.to_string()),
        ("of that without a loss", found.held.strict.to_string()),
        ("found none free", found.held.denied.to_string()),
        ("of that judged", found.held.refused.to_string()),
        ("waited for a place", found.held.stood.to_string()),
        ("leases lost", report.lost_leases.to_string()),
        ("reclaimed", report.reclaimed.to_string()),
        ("waited", found.turns.waited.to_string()),
        ("stated a wait", found.stated.to_string()),
        ("refused of these", found.impatient.to_string()),
        ("left before", found.turns.left.to_string()),
        ("took a place", found.turns.in_gaps.to_string()),
        ("owed a place", found.turns.owed_place.to_string()),
        ("found no room", found.lines.full.to_string()),
        ("refused when closed", found.lines.stopped.to_string()),
        ("found it closed", found.lines.closed.to_string()),
        ("judged strictly", found.turns.strict.to_string()),
        ("after a loss", found.turns.after_loss.to_string()),
        ("after a step", found.turns.after_step.to_string()),
        ("in doubt", found.turns.in_doubt.to_string()),
        ("passed of leased budgets", found.leased.passed.to_string()),
        ("from a block", found.leased.leased.to_string()),
        ("of these budgets denied", found.leased.denied.to_string()),
        (
            "of the bound at most",
            format!("{} %", found.leased.fullest_percent),
        ),
        ("knocks", found.banned.knocks.to_string()),
        ("bans", found.banned.begun.to_string()),
        ("by hand", found.banned.by_hand.to_string()),
        ("lengthened", found.banned.lengthened.to_string()),
        ("found a longer one", found.banned.kept_longer.to_string()),
        ("pardoned", found.banned.pardoned.to_string()),
        ("struck by a response", found.banned.by_response.to_string()),
        ("banned by one", found.banned.begun_by_response.to_string()),
        ("while banned", found.banned.banned.to_string()),
        ("kept out", found.banned.kept_out.to_string()),
        ("of what is kept", found.banned.from_kept.to_string()),
        ("judged strictly", found.banned.strict.to_string()),
        ("after a loss", found.banned.after_loss.to_string()),
        ("after a step", found.banned.after_step.to_string()),
        ("in doubt", found.banned.in_doubt.to_string()),
        ("granted whole", found.grants.whole.to_string()),
        ("in part", found.grants.in_part.to_string()),
        ("nothing", found.grants.denied.to_string()),
        ("unknown", found.grants.lost.to_string()),
        ("ids charged", found.once.charged.to_string()),
        ("charged again", found.once.charged_again.to_string()),
        ("replayed", found.once.replayed.to_string()),
        ("of another process", found.once.from_another.to_string()),
        ("after no answer", found.once.after_unheard.to_string()),
        ("given back", found.once.returned.to_string()),
        ("charged after that", found.once.after_returned.to_string()),
        ("judged strictly", found.once.strict.to_string()),
        ("in doubt", found.once.in_doubt.to_string()),
        ("while cold", found.warming.cold.to_string()),
        ("judged strictly", found.warming.strict.to_string()),
        ("within bounds", found.warming.within.to_string()),
        ("in doubt", found.warming.in_doubt.to_string()),
        ("by a replaced quota", found.replaced.by_another.to_string()),
        (
            "by another algorithm",
            found.replaced.by_another_algorithm.to_string(),
        ),
        ("judged strictly", found.rated.strict.to_string()),
        ("within bounds", found.rated.within.to_string()),
        ("in doubt", found.rated.in_doubt.to_string()),
        ("wrong", report.wrongs().len().to_string()),
        (
            "slowest answer",
            format!("{} ms", report.slowest.as_millis()),
        ),
        (
            "of that no processor",
            format!("{} ms", report.kept.as_millis()),
        ),
        (
            "time to recover",
            format!("{} ms", report.recovery.as_millis()),
        ),
    ]
}

//! The answer over HTTP, as its client hears it.

use axum::http::{HeaderMap, StatusCode};

use crate::attempt::{AskedCharge, HttpAnswer};
use crate::population::Population;
use crate::settling::SETTLED;

/// The status and the fields of a response.
pub(super) fn told_by(
    status: StatusCode,
    headers: &HeaderMap,
    asked: &[AskedCharge],
) -> HttpAnswer {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let members = headers.get_all("ratelimit").iter();
    let members = members.filter_map(|line| line.to_str().ok());
    let members: Vec<_> = members.flat_map(|line| line.split(", ")).collect();
    let left = |asked: &AskedCharge| {
        let name = format!("\"{}\";", Population::name(asked.budget.policy));
        let mut own = members.iter().filter_map(|it| it.strip_prefix(&name));
        let mut fields = own.next()?.split(';');
        fields.find_map(|field| field.strip_prefix("r=")?.parse().ok())
    };
    let settled = |asked: &AskedCharge| {
        let cost = text(&format!("{SETTLED}{}", asked.budget.policy))?;
        cost.parse().ok()
    };
    HttpAnswer {
        status: status.as_u16(),
        retry_after_s: text("retry-after").and_then(|value| value.parse().ok()),
        remaining: asked.iter().map(left).collect(),
        settled: asked.iter().map(settled).collect(),
    }
}

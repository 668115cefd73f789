//! One quota of a policy, with everything about it that does not change from request to request.

use std::sync::Arc;

use super::label::{Label, Rank};
use super::name::check_name;
use crate::{Concurrent, ConfigError, ParseQuotaError, Quota, QuotaError, Scope};

/// A quota of a policy.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The quota: how much, and by which rule.
    pub quota: Quota,
    /// The scope in which the budgets of its callers lie.
    pub scope: Scope,
    /// Its names.
    pub label: Arc<Label>,
}

impl Limit {
    /// The limit as requests of a class see it: with this quota, out of the same states.
    pub(super) fn of_class(&self, class: Option<Arc<str>>, rank: Rank, quota: Quota) -> Self {
        Self {
            quota,
            scope: self.scope,
            label: self.label.of_class(class, rank, &quota),
        }
    }

    /// The name in headers of a quota that has none of its own, by its position in a policy.
    pub(super) fn name(policy: &str, index: usize) -> String {
        match index {
            0 => policy.to_owned(),
            _ => format!("{policy}-{}", index + 1),
        }
    }

    /// The limit with states of this family, which belongs to no other policy: its name has a character that no policy's name
    /// has.
    pub(super) fn in_family(&self, family: &str) -> Self {
        let (policy, quota) = (self.label.policy(), self.label.quota());
        let name = self.scope.policy().strip_prefix(policy).unwrap_or("");
        let family = format!("{family}{name}");
        let scope = Scope::of(&family, self.scope.slot(), &self.quota);
        Self {
            quota: self.quota,
            scope,
            label: Label::new(policy, scope, quota, &self.quota),
        }
    }
}

/// One quota or several, for [`Policy::new`](crate::Policy::new): a [`Quota`], an array of them, or text as in
/// [`Quota::parse_all`]. A pair or triple mixes quotas and limits on [how many at once](Concurrent).
///
/// Headers call a single quota by the policy's name. They call the first of several like the policy, and the others with a
/// number, `api-2`. Named quotas, such as `[("second", "10/s"), ("day", "1000/day")]`, are `api-second` and `api-day`. Names
/// belong to the policy, so that another one may have a `day` as well.
///
/// ```
/// use tollgate::{Concurrent, Policy, Quota, Quotas};
///
/// let policies = [
///     Policy::new("one", Quota::per_second(10)),
///     Policy::new("two", "10/s burst 50; 1000/day"),
///     Policy::new("both", (Quota::per_second(10), Concurrent::at_most(5))),
///     Policy::new("named", [("second", "10/s"), ("day", "1000/day")]),
///     Policy::new("closed", Quotas::none()),
/// ];
/// ```
#[derive(Clone, Debug)]
pub struct Quotas(QuotaInput);

#[derive(Clone, Debug)]
enum QuotaInput {
    These(Vec<(Option<String>, Quota)>),
    None,
    /// A text that is not a quota. The policy that takes it reports the error.
    Wrong {
        text: String,
        error: ParseQuotaError,
    },
}

/// Texts that users write for "no limit", and that are not quotas.
const NO_LIMIT: [&str; 6] = [
    "unlimited",
    "infinite",
    "infinity",
    "inf",
    "no limit",
    "off",
];

/// Texts that users write for "no quota".
const NONE: &str = "none";

impl Quotas {
    /// A limit of 0, as text `none`: every request is refused with 403, without a question to the backend. The status is not 429,
    /// because no waiting helps. It is for a tier of blocked customers, or for a policy whose tiers name the callers that may
    /// pass. A policy on trial refuses no request.
    #[must_use]
    pub const fn none() -> Self {
        Self(QuotaInput::None)
    }

    /// True if they are the text for no limit, which is an answer about an identity and no quota of a policy.
    pub(super) fn says_unlimited(&self) -> bool {
        matches!(&self.0, QuotaInput::Wrong { text, .. } if text == NO_LIMIT[0])
    }

    /// The number of quotas.
    pub(super) const fn len(&self) -> usize {
        match &self.0 {
            QuotaInput::These(quotas) => quotas.len(),
            QuotaInput::None | QuotaInput::Wrong { .. } => 0,
        }
    }

    pub(super) const fn is_none(&self) -> bool {
        matches!(self.0, QuotaInput::None)
    }

    fn of(quotas: impl IntoIterator<Item = (Option<String>, Quota)>) -> Self {
        Self(QuotaInput::These(quotas.into_iter().collect()))
    }

    /// The quotas of all texts, each with its name if it has one.
    fn read<'a>(texts: impl IntoIterator<Item = (Option<&'a str>, &'a str)>) -> Self {
        let mut quotas = Vec::new();
        for (name, text) in texts {
            let read = match name {
                // Several quotas cannot share one name.
                Some(_) => text.parse().map(|quota| vec![quota]),
                None => Quota::parse_all(text),
            };
            match read {
                Ok(read) => {
                    let name = name.map(str::to_owned);
                    quotas.extend(read.into_iter().map(|quota| (name.clone(), quota)));
                }
                Err(error) => {
                    let text = text.chars().take(128).collect();
                    return Self(QuotaInput::Wrong { text, error });
                }
            }
        }
        Self(QuotaInput::These(quotas))
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self::of([])
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self::of([(None, quota)])
    }
}

impl From<Concurrent> for Quotas {
    fn from(concurrent: Concurrent) -> Self {
        Quota::from(concurrent).into()
    }
}

/// Quotas and limits on [how many at once](Concurrent), in any order.
impl<A: Into<Quota>, B: Into<Quota>> From<(A, B)> for Quotas {
    fn from((a, b): (A, B)) -> Self {
        [a.into(), b.into()].into()
    }
}

/// Quotas and limits on [how many at once](Concurrent), in any order.
impl<A: Into<Quota>, B: Into<Quota>, C: Into<Quota>> From<(A, B, C)> for Quotas {
    fn from((a, b, c): (A, B, C)) -> Self {
        [a.into(), b.into(), c.into()].into()
    }
}

impl From<Vec<Quota>> for Quotas {
    fn from(quotas: Vec<Quota>) -> Self {
        Self::of(quotas.into_iter().map(|quota| (None, quota)))
    }
}

impl<const N: usize> From<[Quota; N]> for Quotas {
    fn from(quotas: [Quota; N]) -> Self {
        quotas.to_vec().into()
    }
}

impl<const N: usize> From<[(&str, Quota); N]> for Quotas {
    fn from(quotas: [(&str, Quota); N]) -> Self {
        quotas.into_iter().collect()
    }
}

impl From<&str> for Quotas {
    fn from(text: &str) -> Self {
        if is_none(text) {
            return Self::none();
        }
        Self::read([(None, text)])
    }
}

impl From<&String> for Quotas {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<String> for Quotas {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl<const N: usize> From<[&str; N]> for Quotas {
    fn from(texts: [&str; N]) -> Self {
        Self::read(texts.map(|text| (None, text)))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Quotas {
    fn from(texts: [(&str, &str); N]) -> Self {
        Self::read(texts.map(|(name, text)| (Some(name), text)))
    }
}

impl<N: Into<String>> FromIterator<(N, Quota)> for Quotas {
    fn from_iter<I: IntoIterator<Item = (N, Quota)>>(quotas: I) -> Self {
        let quotas = quotas.into_iter();
        Self::of(quotas.map(|(name, quota)| (Some(name.into()), quota)))
    }
}

/// True if a text stands for a limit of 0.
pub fn is_none(text: &str) -> bool {
    text.trim().eq_ignore_ascii_case(NONE)
}

/// The reason why a text is not a quota, with the text for a limit of 0.
pub(crate) fn why_no_quota(text: &str, error: &ParseQuotaError) -> String {
    match error {
        _ if NO_LIMIT.contains(&text.trim().to_ascii_lowercase().as_str()) => format!(
            "{error}; to limit no request, leave the policy out; for an unlimited tier use `Tiers::unlimited`, in a \
             configuration {:?}",
            NO_LIMIT[0]
        ),
        ParseQuotaError::Quota(QuotaError::ZeroLimit) => format!(
            "{error}; {NONE:?} refuses every request; to limit no request, leave the policy out"
        ),
        error => error.to_string(),
    }
}

impl Quotas {
    /// The limits of a policy. There are none if every request is refused.
    pub(super) fn into_limits(self, policy: &str) -> Result<Arc<[Limit]>, ConfigError> {
        self.into_limits_in(policy, |family, slot, quota| {
            Ok(Scope::of(family, slot, quota))
        })
    }

    /// The limits of a policy. There are none if every request is refused. `scope` gives each quota its scope, by the family of
    /// its states and a position in it.
    pub(super) fn into_limits_in(
        self,
        policy: &str,
        scope: impl Fn(&str, u16, &Quota) -> Result<Scope, ConfigError>,
    ) -> Result<Arc<[Limit]>, ConfigError> {
        let quotas = match self.0 {
            QuotaInput::These(quotas) => quotas,
            QuotaInput::None => return Ok(Arc::default()),
            QuotaInput::Wrong { text, error } => {
                let reason = why_no_quota(&text, &error);
                return Err(ConfigError::Quota {
                    policy: policy.into(),
                    text,
                    reason,
                });
            }
        };
        if quotas.is_empty() {
            return Err(ConfigError::NoQuota {
                policy: policy.into(),
            });
        }
        let are_several = quotas.len() > 1;
        let limits = quotas
            .into_iter()
            .enumerate()
            .map(|(index, (name, quota))| {
                let (name, scope) = match name {
                    // Its states are found by its name, in whatever order the quotas are stated.
                    Some(name) => {
                        check_name(&name)?;
                        let family = format!("{policy}:{name}");
                        let name = are_several.then(|| format!("{policy}-{name}"));
                        (name, scope(&family, 0, &quota)?)
                    }
                    // A policy of more quotas than that is refused with its limiter, for having too many.
                    None => {
                        let slot = u16::try_from(index).unwrap_or(u16::MAX);
                        let name = (index > 0).then(|| Limit::name(policy, index));
                        (name, scope(policy, slot, &quota)?)
                    }
                };
                let name = name.unwrap_or_else(|| policy.to_owned());
                Ok(Limit {
                    quota,
                    scope,
                    label: Label::new(policy, scope, &name, &quota),
                })
            });
        limits.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(quotas: impl Into<Quotas>) -> Vec<String> {
        let limits = quotas.into().into_limits("api").unwrap();
        limits
            .iter()
            .map(|limit| limit.label.quota().to_owned())
            .collect()
    }

    #[test]
    fn quotas_are_named_after_their_policy_unless_they_have_names() {
        let (second, day) = (Quota::per_second(10), Quota::per_day(1000));
        assert_eq!(names(second), ["api"]);
        assert_eq!(names([second, day]), ["api", "api-2"]);
        assert_eq!(
            names([("burst", second), ("daily", day)]),
            ["api-burst", "api-daily"]
        );
        assert_eq!(names([("daily", day)]), ["api"]);
    }

    #[test]
    fn a_quota_whose_name_is_none_is_refused() {
        let quotas = Quotas::from([("Daily", Quota::per_day(1))]);
        assert!(quotas.into_limits("api").is_err());
    }

    #[test]
    fn quotas_may_be_text() {
        let (second, day) = (Quota::per_second(10), Quota::per_day(1000));
        let texts = [
            names("10/s; 1000 per day"),
            names(String::from("10/s\n1000/day")),
            names(["10/s", "1000/day"]),
            names(["10/s; 1000/day"]),
        ];
        assert_eq!(texts, [["api", "api-2"]; 4]);
        assert_eq!(
            names([("burst", "10/s"), ("daily", "1000/day")]),
            ["api-burst", "api-daily"]
        );
        let limits = Quotas::from("10/s; 1000/day").into_limits("api").unwrap();
        assert_eq!([limits[0].quota, limits[1].quota], [second, day]);
    }

    #[test]
    fn a_text_that_is_no_quota_is_refused_with_its_policy_and_what_would_work() {
        let refusal = |quotas: Quotas| quotas.into_limits("api").unwrap_err().to_string();
        assert_eq!(
            refusal("10/minit".into()),
            "policy \"api\": quota \"10/minit\": expected a period, such as s, 10s, min, h or day, found \"minit\"; did you \
             mean \"10/min\""
        );
        assert_eq!(
            refusal(["10/s", "0/day"].into()),
            "policy \"api\": quota \"0/day\": a limit of 0 admits nothing; \"none\" refuses every request; to limit no \
             request, leave the policy out"
        );
        assert!(refusal([("day", "10/s; 5/h")].into()).contains("expected one quota"));
        for (text, end) in [
            (
                "0",
                "; \"none\" refuses every request; to limit no request, leave the policy out",
            ),
            ("10/h 5/s", "; did you mean \"10/h; 5/s\""),
            ("10/", "; did you mean \"10/s\""),
            ("10/1.5h", "90min for 1.5h, found \"1.5\""),
            (
                "Unlimited",
                "; to limit no request, leave the policy out; for an unlimited tier use `Tiers::unlimited`, in a configuration \
                 \"unlimited\"",
            ),
        ] {
            let refused = refusal(text.into());
            assert!(
                refused.starts_with(&format!("policy \"api\": quota {text:?}: ")),
                "{refused}"
            );
            assert!(refused.ends_with(end), "{refused}");
        }
        assert_eq!(
            refusal("".into()),
            "policy \"api\": quota \"\": expected LIMIT/PERIOD, such as 10/s, or LIMIT at once, found the end"
        );
    }

    #[test]
    fn named_quotas_keep_their_states_in_whatever_order_they_are_stated() {
        let scopes = |quotas: &[(&str, Quota)]| -> Vec<Scope> {
            let quotas: Quotas = quotas.iter().copied().collect();
            let limits = quotas.into_limits("api").unwrap();
            limits.iter().map(|limit| limit.scope).collect()
        };
        let second = ("second", Quota::per_second(10));
        let (hour, day) = (("hour", Quota::per_hour(90)), ("day", Quota::per_day(1000)));
        let before = scopes(&[second, day]);
        assert_ne!(before[0], before[1]);
        assert_eq!(scopes(&[day, hour, second])[0], before[1]);
        assert_eq!(scopes(&[day, hour, second])[2], before[0]);
        assert_eq!(scopes(&[day]), before[1..]);
        assert_eq!(before[1].policy(), "api:day");
    }

    #[test]
    fn two_quotas_of_one_policy_have_states_of_their_own() {
        let limits = Quotas::from([Quota::per_second(10), Quota::per_day(1000)]);
        let limits = limits.into_limits("api").unwrap();
        assert_ne!(limits[0].scope, limits[1].scope);
    }
}

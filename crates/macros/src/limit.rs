//! The meaning of an annotation, if it is valid.

use proc_macro2::Span;
use syn::{Error, LitStr, Path, Result, Type};
use tollgate_core::{Ban, MAX_NAME_LEN, Quota, is_name};

use crate::arguments::{Argument, Arguments, Number};

/// One limit of a handler.
pub(crate) struct Limit {
    pub(crate) rule: Rule,
    /// The cost of a request, if it is not the policy's.
    pub(crate) cost: Option<u64>,
    /// The path of `tollgate`, if it was stated.
    pub(crate) krate: Option<Path>,
}

pub(crate) enum Rule {
    /// A policy of the limiter.
    Policy(String),
    /// A policy of the handler's own.
    Inline {
        quotas: Vec<Quota>,
        name: Option<String>,
        key: Option<Box<Type>>,
        ban: Option<String>,
        /// The header that has a request's id.
        once_by: Option<String>,
        shadow: bool,
    },
}

impl Limit {
    /// Reports an empty annotation at `nothing`.
    pub(crate) fn new(arguments: Arguments, nothing: Span) -> Result<Self> {
        let krate = arguments.krate.as_ref().map(|krate| krate.value.clone());
        match (&arguments.quota, &arguments.policy) {
            (Some(_), Some(policy)) => Err(Error::new(
                policy.span,
                "an annotation has either a quota of its own or a policy of the limiter: use two",
            )),
            (None, None) => Err(Error::new(
                nothing,
                "how much is missing: a quota such as \"10/min\", or the limiter's `policy = \"..\"`",
            )),
            (None, Some(policy)) => {
                refuse_what_is_the_policys(&arguments)?;
                Ok(Self {
                    rule: Rule::Policy(name(&policy.value)?),
                    cost: arguments.cost.map(|cost| cost.value.value),
                    krate,
                })
            }
            (Some(text), None) => {
                let quotas = quotas(text, arguments.burst.as_ref())?;
                Ok(Self {
                    cost: cost_within(&quotas, arguments.cost.as_ref())?,
                    rule: Rule::Inline {
                        quotas,
                        name: arguments.name.map(|one| name(&one.value)).transpose()?,
                        key: arguments.key.map(|key| Box::new(key.value)),
                        ban: arguments.ban.map(|text| ban(&text.value)).transpose()?,
                        once_by: arguments
                            .once_by
                            .map(|text| header(&text.value))
                            .transpose()?,
                        shadow: arguments.shadow.is_some(),
                    },
                    krate,
                })
            }
        }
    }
}

fn refuse_what_is_the_policys(arguments: &Arguments) -> Result<()> {
    let others = [
        ("ban", arguments.ban.as_ref().map(|one| one.span)),
        ("burst", arguments.burst.as_ref().map(|one| one.span)),
        ("key", arguments.key.as_ref().map(|one| one.span)),
        ("name", arguments.name.as_ref().map(|one| one.span)),
        ("once_by", arguments.once_by.as_ref().map(|one| one.span)),
        ("shadow", arguments.shadow.as_ref().map(|one| one.span)),
    ];
    match others
        .into_iter()
        .find_map(|(name, span)| Some((name, span?)))
    {
        Some((name, span)) => Err(Error::new(
            span,
            format!("`{name}` is for the policy to say, where the limiter is built"),
        )),
        None => Ok(()),
    }
}

fn quotas(text: &LitStr, burst: Option<&Argument<Number>>) -> Result<Vec<Quota>> {
    let written = text.value();
    let quotas = Quota::parse_all(&written)
        .map_err(|error| Error::new(text.span(), format!("quota {written:?}: {error}")))?;
    let Some(burst) = burst else {
        return Ok(quotas);
    };
    if written.to_ascii_lowercase().contains("burst") {
        return Err(Error::new(burst.span, "the quota says its burst already"));
    }
    let [quota] = quotas.as_slice() else {
        return Err(Error::new(
            burst.span,
            "there are several quotas: each says its burst itself, as in \"10/s burst 50; 1000/day\"",
        ));
    };
    let quota = quota.try_burst(burst.value.value);
    quota
        .map(|quota| vec![quota])
        .map_err(|error| Error::new(burst.value.span, error))
}

/// The text of a ban, in the form that a ban prints.
fn ban(text: &LitStr) -> Result<String> {
    let written = text.value();
    let ban: Ban = { written.parse() }
        .map_err(|error| Error::new(text.span(), format!("ban {written:?}: {error}")))?;
    Ok(ban.to_string())
}

/// The name of a header: a token of RFC 9110, 5.6.2.
fn header(name: &LitStr) -> Result<String> {
    let text = name.value();
    let is_of_tokens =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_of_tokens) {
        return Ok(text);
    }
    Err(Error::new(
        name.span(),
        format!("{text:?} is not the name of a header"),
    ))
}

fn cost_within(quotas: &[Quota], cost: Option<&Argument<Number>>) -> Result<Option<u64>> {
    let capacities = quotas.iter().map(Quota::capacity);
    let capacity = capacities.min().unwrap_or(u64::MAX);
    match cost.map(|cost| &cost.value) {
        Some(cost) if cost.value > capacity => Err(Error::new(
            cost.span,
            format!(
                "a cost of {} never passes: a full budget holds {capacity}",
                cost.value
            ),
        )),
        cost => Ok(cost.map(|cost| cost.value)),
    }
}

fn name(name: &LitStr) -> Result<String> {
    let text = name.value();
    if is_name(&text) {
        return Ok(text);
    }
    Err(Error::new(
        name.span(),
        format!(
            "{text:?}: invalid name; use at most {MAX_NAME_LEN} of a-z, 0-9, -, _, . and /, starting with a letter or digit"
        ),
    ))
}

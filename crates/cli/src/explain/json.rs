//! The explanation for programs.

use serde_json::{Value, json};

use super::text::{assumptions, identity, not_asked};
use super::{Account, Explanation, Outcome};
use crate::arguments::ExplainArguments;
use crate::figures::ms;
use crate::recorder::Question;

pub(super) fn report(asked: &ExplainArguments, explanation: &Explanation) -> String {
    let accounts = explanation.policies.iter();
    let policies = accounts.filter_map(|account| policy(account, explanation));
    let peer = asked.peer.map(|peer| peer.address().to_string());
    let answer = explanation.answer.as_ref().map(|answer| {
        let headers = answer.headers().iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            json!({ "name": name.as_str(), "value": value })
        });
        json!({
            "status": answer.status().as_u16(),
            "headers": headers.collect::<Vec<_>>(),
            "body": String::from_utf8_lossy(answer.body()),
        })
    });
    let report = json!({
        "request": asked.request,
        "peer": peer,
        "limits": asked.limits.display().to_string(),
        "budgets": if asked.redis.are_given() { "fleet" } else { "full" },
        "outcome": match explanation.outcome() {
            Outcome::Passes => "passes",
            Outcome::Refused => "refused",
            Outcome::Waits => "waits",
        },
        "policies": policies.collect::<Vec<_>>(),
        "answer": answer,
        "assumed": assumptions(explanation),
    });
    format!("{report:#}\n")
}

fn policy(account: &Account, explanation: &Explanation) -> Option<Value> {
    let name = account.policy.name();
    let mut configs = explanation.limits.config().policies.iter();
    let config = configs.find(|config| config.name == name)?;
    let questions = explanation.record.questions.iter();
    let questions: Vec<_> = questions.filter(|it| it.policy == name).collect();
    let untouched = account.untouched.as_ref();
    let key = match untouched {
        Some(untouched) => untouched.key.as_ref(),
        None => questions.first().map(|question| &question.key),
    };
    let not_asked = not_asked(account, config, !questions.is_empty(), &explanation.method);
    // A policy that does not cover the request has no question to it.
    let budgets = questions.iter().filter(|it| it.is_of_quota());
    let banned = questions.iter().find_map(|it| it.banned_for());
    Some(json!({
        "policy": name,
        "on_trial": config.shadow,
        "not_asked": not_asked,
        "caller": key.map(identity),
        "budgets": budgets.map(|it| Question::json(it)).collect::<Vec<_>>(),
        "banned_for_ms": banned.map(ms),
    }))
}

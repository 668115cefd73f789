//! The explanation for people.

use http::Method;
use tollgate::config::PolicyConfig;
use tollgate::{BannedCaller, Cause, Key, KeyKind};
use tollgate_limiter::transport::Unmet;

use super::{Account, Explanation, Outcome};
use crate::arguments::ExplainArguments;
use crate::figures::{about, grouped};
use crate::limits::Registered;
use crate::method;
use crate::policy_words;
use crate::recorder::Question;

pub(super) fn report(asked: &ExplainArguments, explanation: &Explanation) -> String {
    let from = match asked.peer {
        Some(peer) => format!("from {}", peer.address()),
        None => "from a peer without an address".to_owned(),
    };
    let budgets = if asked.redis.are_given() {
        "by the fleet's budgets as they are now; nothing is charged"
    } else {
        "by full budgets, as of the first request of its caller"
    };
    let mut lines = vec![
        format!("{} {from}", asked.request),
        format!("  by {}, {budgets}", asked.limits.display()),
        format!("  {}", outcome(explanation)),
    ];
    for account in &explanation.policies {
        policy(account, explanation, &mut lines);
    }
    answer(asked, explanation, &mut lines);
    unknown(explanation, &mut lines);
    lines.join("\n") + "\n"
}

fn outcome(explanation: &Explanation) -> &'static str {
    let mut asked = explanation.record.questions.iter();
    match explanation.outcome() {
        Outcome::Waits => "it would wait for its turn",
        Outcome::Refused => "it is refused",
        Outcome::Passes if asked.any(Question::is_of_quota) => "it passes",
        Outcome::Passes => "it passes, and nothing is charged",
    }
}

fn policy(account: &Account, explanation: &Explanation, lines: &mut Vec<String>) {
    let name = account.policy.name();
    let config = explanation.limits.config().policies.iter();
    let Some(config) = config.clone().find(|config| config.name == name) else {
        return;
    };
    let trial = if config.shadow { ", on trial" } else { "" };
    lines.push(format!("\npolicy {name}{trial}"));
    let mut say = |name: &str, words: &str| lines.push(format!("  {name:<10} {words}"));
    let questions = explanation.record.questions.iter();
    let questions: Vec<_> = questions.filter(|it| it.policy == name).collect();
    if let Some(why) = not_asked(account, config, !questions.is_empty(), &explanation.method) {
        say("not asked", &why);
        let untouched = account.untouched.as_ref();
        if let Some(key) = untouched.and_then(|untouched| untouched.key.as_ref()) {
            say("caller", &whose(config, key));
        }
        return;
    }
    let covers = policy_words::covers(config, explanation.limits.config());
    say("covers", &covers);
    if let Some(first) = questions.first() {
        say("budget of", &whose(config, &first.key));
    }
    if let Some(missing) = &account.missing {
        say("", &format!("the request has no {}", missing.what()));
    }
    let quotas = || questions.iter().filter(|question| question.is_of_quota());
    // A request costs each quota of a policy the same.
    if let Some(question) = quotas().next() {
        say("costs", &grouped(question.cost));
    }
    for question in quotas() {
        say("quota", &question.words());
    }
    for left in questions.iter().filter_map(|it| it.banned_for()) {
        say("banned", &format!("for {} more", about(left)));
    }
}

/// The reason why a policy's budgets were not asked.
pub(super) fn not_asked(
    account: &Account,
    config: &PolicyConfig,
    has_questions: bool,
    method: &Method,
) -> Option<String> {
    if let Some(untouched) = &account.untouched {
        return Some(match &account.missing {
            Some(missing) if untouched.cause == Cause::PassedUnidentified => {
                let what = missing.what();
                format!("the request has no {what}, and requests without one pass")
            }
            _ => untouched_words(untouched.cause).to_owned(),
        });
    }
    let unmet = account
        .unmet
        .map(|unmet| unmet_words(unmet, config, method));
    unmet.or_else(|| (!has_questions).then(|| REFUSED_BEFORE.to_owned()))
}

/// The identity as the names of states have it: `=` before a text.
fn whose(config: &PolicyConfig, key: &Key) -> String {
    let payer = policy_words::payer(config);
    match key.kind() {
        KeyKind::Global => payer,
        KeyKind::Missing => "all callers without an identity, together".to_owned(),
        _ => format!("{payer}: {}", identity(key)),
    }
}

/// The identity alone.
pub(super) fn identity(key: &Key) -> String {
    let named = BannedCaller::new(key.clone(), std::time::Duration::ZERO);
    named.identity().to_owned()
}

const REFUSED_BEFORE: &str = "another policy refuses the request before";

fn untouched_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Exempt => "it covers the request, and the operator has exempted it",
        Cause::Off => "it is switched off",
        Cause::Blocked => {
            "it refuses the request: the caller is blocked, or its tier has a limit of 0"
        }
        Cause::Unidentified => "it refuses the request: there is no identity in it",
        Cause::TierUnknown => "it refuses the request: the caller's tier is not known",
        Cause::Unasked => REFUSED_BEFORE,
        _ => "it was decided without a question to the budgets",
    }
}

fn unmet_words(unmet: Unmet, config: &PolicyConfig, of_request: &Method) -> String {
    match unmet {
        Unmet::OnDemand => "only the service's code charges it, by its name".to_owned(),
        Unmet::Messages => "it charges messages of streams, and no requests".to_owned(),
        Unmet::Path => {
            let grpc = config.grpc.iter().map(|method| format!("gRPC {method}"));
            let routes: Vec<_> = config.routes.iter().cloned().chain(grpc).collect();
            format!("the path is not {}", routes.join(" or "))
        }
        Unmet::ExemptPath => format!("the path is exempt: {}", config.exempt_routes.join(", ")),
        Unmet::Method => {
            let names = config.methods.join(" or ");
            let is_named = |upper: &str| config.methods.iter().any(|name| name == upper);
            match method::meant(of_request.as_str(), is_named) {
                Some(upper) => format!(
                    "the method is not {names}: methods are case-sensitive, and {of_request} is not {upper}"
                ),
                None => format!("the method is not {names}"),
            }
        }
        Unmet::ExemptMethod => {
            format!("the method is exempt: {}", config.exempt_methods.join(", "))
        }
        Unmet::Host => format!("the host is not {}", config.hosts.join(" or ")),
        Unmet::ExemptNetwork => "the caller is in an exempt network".to_owned(),
        _ => "a condition of the service does not hold".to_owned(),
    }
}

fn answer(asked: &ExplainArguments, explanation: &Explanation, lines: &mut Vec<String>) {
    let Some(answer) = &explanation.answer else {
        return;
    };
    let is_refused = explanation.outcome() == Outcome::Refused;
    lines.push(match (is_refused, answer.headers().is_empty()) {
        (true, _) => format!("\nthe answer: {}", answer.status()),
        (false, true) => "\nnothing is added to the answer of the service".to_owned(),
        (false, false) => "\nadded to the answer of the service".to_owned(),
    });
    if asked.redis.are_given() && !is_refused && !answer.headers().is_empty() {
        lines.push("  (as the budgets are before the request is charged)".to_owned());
    }
    for (name, value) in answer.headers() {
        let value = String::from_utf8_lossy(value.as_bytes());
        lines.push(format!("  {name}: {value}"));
    }
    if !answer.body().is_empty() {
        lines.push(format!("  {}", String::from_utf8_lossy(answer.body())));
    }
}

fn unknown(explanation: &Explanation, lines: &mut Vec<String>) {
    let assumptions = assumptions(explanation);
    if !assumptions.is_empty() {
        lines.push("\nonly the service knows these, and the explanation assumes".to_owned());
    }
    lines.extend(assumptions.iter().map(|assumed| format!("  {assumed}")));
}

/// The facts that only the service has, and what stands for them.
pub(super) fn assumptions(explanation: &Explanation) -> Vec<String> {
    let registered = explanation.limits.registered().iter();
    // Without pressure no class is refused, so that its key does not matter.
    let of_policies = registered.filter(|registered| registered.policy.is_some());
    let mut assumptions: Vec<_> = of_policies.map(Registered::assumption).collect();
    if explanation.limits.config().shed.is_some() {
        assumptions
            .push("of the pressure: that there is none, so that no class is refused".to_owned());
    }
    assumptions
}

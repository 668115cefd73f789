//! The policies that cover what a handler saw, in the words of the documentation and from the handler's side.
//!
//! Nothing here knows how the limiter does it: not its matcher, nor its keys, nor where it looks for a preflight.

use std::collections::HashMap;
use std::slice;

use http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN, TE,
};
use http::{HeaderValue, Method};
use tollgate::{Key, KeyKind, OnMissing};

use crate::truth::book::{Head, Page, Place, Run};
use crate::truth::policies::{
    ExemptBy, FAVOURITE, LISTED_METHODS, LISTED_ROUTES, PLENTY, REFUSED, REFUSED_HOST,
    REFUSED_NUMBER, Rule,
};
use crate::truth::readings::{HEADER, Reading, Who};
use crate::truth::services::{ANNOTATED, LIMITED};

/// The findings that the judge may report.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) kind: Kind,
    pub(crate) rule: &'static str,
    /// The handler that ran.
    pub(crate) place: Place,
    pub(crate) what: String,
    /// The requests that show it.
    pub(crate) requests: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A handler ran that a policy covers, and the policy was not charged.
    Uncharged(Who, Look),
    /// A policy does not recognise a caller that the handler recognises.
    TwoBudgets(Who),
    /// More got through for one caller than the quota.
    TooMany(Who),
    /// A caller spent what another has.
    SomebodyElses(Who),
    /// A caller that the policy refuses came through.
    Admitted(Who),
    /// An annotated handler ran, and its annotation was not charged.
    OwnUncharged,
    /// An annotation has several budgets for one caller.
    OwnTwice,
    /// A method was handed messages that were not charged.
    FreeMessages,
}

/// The parts of a request that may have made it look like another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Look {
    Plain,
    Preflight,
    /// Its path begins like a service of gRPC's own.
    HealthCheck,
    /// The policy is for a host.
    Host,
    /// The policy exempts paths.
    Path,
}

/// The knowledge about one service so far.
pub(crate) struct Judge<'a> {
    rules: &'a [Rule],
    /// The policy that is an interceptor's.
    intercepting: Option<&'static str>,
    /// The budgets of callers, by policy and caller, with the request that each was first seen in.
    budgets: HashMap<Caller, (Key, usize)>,
    /// The owners of budgets, by policy and budget, with the request that showed each first. Callers that lack a part are one owner
    /// if they agree in the others.
    owners: HashMap<(usize, Key), (Vec<Reading>, usize)>,
    /// The requests that passed, by policy and caller.
    passed: HashMap<(Caller, Vec<Option<Reading>>), Passed>,
    /// The policies of annotated handlers, with the request that each was first seen in.
    annotations: HashMap<&'static str, (&'static str, usize)>,
}

/// The place of a policy, and the caller for which it is asked; `None` if no handler knows the caller.
type Caller = (usize, Option<Vec<u8>>);

#[derive(Default)]
struct Passed {
    count: u64,
    /// True if some of it was out of the budget that callers without a clear identity share.
    shared: bool,
    requests: Vec<usize>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(rules: &'a [Rule], intercepting: Option<&'static str>) -> Self {
        Self {
            rules,
            intercepting,
            budgets: HashMap::new(),
            owners: HashMap::new(),
            passed: HashMap::new(),
            annotations: HashMap::new(),
        }
    }

    /// The findings about the request of this number.
    pub(crate) fn hear(&mut self, number: usize, page: &Page) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        for run in &page.runs {
            wrongs.extend(self.own(number, run, page));
            for (index, rule) in self.rules.iter().enumerate() {
                if self.covers(rule, run) {
                    wrongs.extend(self.charged(index, rule, number, run, page));
                }
            }
        }
        wrongs
    }

    /// The annotation of the handler, if it has one and was not asked, or not as for other methods.
    fn own(&mut self, number: usize, run: &Run, page: &Page) -> Option<Wrong> {
        let own = run
            .place
            .own
            .filter(|own| [ANNOTATED, LIMITED].contains(own))?;
        let wrong = |kind, what, requests| {
            Some(Wrong {
                kind,
                rule: own,
                place: run.place,
                what,
                requests,
            })
        };
        let mut taken = page.taken.iter();
        // Limits without a name are called by handler or method, and route.
        let Some(taken) = taken.find(|taken| taken.policy.rsplit('/').next() == Some(own)) else {
            return wrong(Kind::OwnUncharged, format!("{run:?}"), vec![number]);
        };
        let known = self.annotations.entry(own);
        let (policy, first) = *known.or_insert((taken.policy, number));
        if policy == taken.policy {
            return None;
        }
        let what = format!("{policy} and {}: {run:?}", taken.policy);
        wrong(Kind::OwnTwice, what, vec![first, number])
    }

    fn charged(
        &mut self,
        index: usize,
        rule: &Rule,
        number: usize,
        run: &Run,
        page: &Page,
    ) -> Option<Wrong> {
        let wrong = |kind, what, requests| {
            Some(Wrong {
                kind,
                rule: rule.name,
                place: run.place,
                what,
                requests,
            })
        };
        let who = rule.who;
        let taken = page.taken.iter().filter(|taken| taken.policy == rule.name);
        let cost: u64 = taken.clone().map(|taken| taken.cost).sum();
        let reading = run.head.readings.get(&who).map_or(&[][..], Vec::as_slice);
        let is_known = reading.iter().any(Option::is_some);
        // A list names each part of an identity with several.
        let parts = match who.parts() {
            [] => slice::from_ref(&who),
            parts => parts,
        };
        let parts = parts.iter().map(|part| {
            let reading = run.head.readings.get(part).map_or(&[][..], Vec::as_slice);
            (*part, reading)
        });
        if rule.favours.is_some() && parts.clone().all(is_favourite) {
            return None;
        }
        let has_come = !rule.per_message || run.messages > 0;
        // A caller that cannot be identified is on no list, and shares a budget.
        let is_told = !taken.clone().any(|taken| is_shared(&taken.key)) && !reading.contains(&None);
        let is_refused = is_known && parts.clone().all(is_refused);
        if rule.favours.is_some() && is_refused && is_told && has_come {
            return wrong(Kind::Admitted(who), format!("{run:?}"), vec![number]);
        }
        let must_be_charged = is_known || rule.on_missing != OnMissing::Pass;
        if rule.per_message {
            if must_be_charged && run.messages > cost {
                let what = format!("{} messages, and {cost} charged: {run:?}", run.messages);
                return wrong(Kind::FreeMessages, what, vec![number]);
            }
        } else if must_be_charged && cost == 0 {
            let what = format!("{run:?} was not charged");
            return wrong(
                Kind::Uncharged(who, look(rule, &run.head)),
                what,
                vec![number],
            );
        }
        let passed = if rule.per_message { run.messages } else { 1 };
        let mut callers = reading.to_vec();
        callers.sort();
        callers.dedup();
        for caller in callers {
            // A caller that some handlers know has an identity. Without one, a caller is free where that is the rule.
            if caller.is_none() && (is_known || !must_be_charged) {
                continue;
            }
            // Who lacks a part shares only with those who agree in the others.
            let others = match caller {
                None => who.parts(),
                Some(_) => &[],
            };
            let others = others
                .iter()
                .map(|part| run.head.readings.get(part).cloned());
            let caller = (index, caller);
            let sharer = (caller.clone(), others.collect::<Vec<_>>());
            let account = self.passed.entry(sharer).or_default();
            account.count += passed;
            account.requests.push(number);
            for taken in taken.clone() {
                let is_shared = is_shared(&taken.key);
                account.shared |= is_shared;
                if !is_shared {
                    let budget = self.budgets.entry(caller.clone());
                    let (key, first) = budget.or_insert_with(|| (taken.key.clone(), number));
                    if *key != taken.key {
                        let (_, name) = &caller;
                        let name = name.as_ref().map(|name| name.escape_ascii().to_string());
                        let what = format!(
                            "{name:?} has the budgets {key:?} and {:?}: {run:?}",
                            taken.key
                        );
                        return wrong(Kind::TwoBudgets(who), what, vec![*first, number]);
                    }
                }
                let exact = who.parts().iter().filter(|part| part.is_exact());
                let exact = exact.filter_map(|part| run.head.readings.get(part).cloned());
                let spender = match &caller {
                    _ if is_shared => exact.collect(),
                    (_, name) if who.is_exact() => vec![vec![name.clone()]],
                    _ => continue,
                };
                let owner = self.owners.entry((index, taken.key.clone()));
                let (owner, first) = owner.or_insert_with(|| (spender.clone(), number));
                if *owner != spender {
                    let what = format!("{:?} is another's: {run:?}", taken.key);
                    return wrong(Kind::SomebodyElses(who), what, vec![*first, number]);
                }
            }
            let budgets = if account.shared {
                budgets_of_a_caller(who)
            } else {
                1
            };
            let most = rule.limit * budgets;
            if rule.limit < PLENTY && account.count > most {
                let what = format!("{} times {run:?}", account.count);
                return wrong(Kind::TooMany(who), what, account.requests.clone());
            }
        }
        None
    }

    fn covers(&self, rule: &Rule, run: &Run) -> bool {
        let place = run.place;
        let stands_around = if rule.on_demand {
            place.own == Some(rule.name)
        } else if self.intercepting == Some(rule.name) {
            place.is_grpc
        } else {
            place.behind
        };
        if !stands_around {
            return false;
        }
        let head = &*run.head;
        covers_path(rule, run)
            && (rule.methods.is_empty() || has(&rule.methods, &head.method))
            && !has(&rule.exempt_methods, &head.method)
            && (rule.hosts.is_empty() || is_for_host(rule, head))
            && !is_exempt(rule, run)
            && !rule.exempt_by.is_some_and(|by| is_listed(by, run))
    }
}

/// The part of a request that names a caller, and the callers that handlers see.
type Seen<'r> = (Who, &'r [Option<Vec<u8>>]);

/// True if the policy may take the caller for its favourite.
fn is_favourite(seen: Seen<'_>) -> bool {
    let (who, reading) = seen;
    // Where the extractor refuses the request, the policy may still know its favourite: of a form, by the query.
    let may_be_told = reading.iter().any(Option::is_some) || reading.is_empty();
    (may_be_told || who == Who::Form) && is_only(seen, FAVOURITE)
}

/// True if the caller is on the list, in whatever spelling.
fn is_refused(seen: Seen<'_>) -> bool {
    let (who, reading) = seen;
    let is_respelled = reading.iter().flatten().all(|caller| match who {
        Who::Host => caller == REFUSED_HOST,
        _ if who.is_typed() => {
            let number = str::from_utf8(caller).ok().map(str::parse::<f64>);
            number == Some(Ok(REFUSED_NUMBER))
        }
        _ => false,
    });
    is_respelled || is_only(seen, REFUSED)
}

/// True if every handler that sees a name sees this one. Quotes around a cookie, slashes behind what stands in a path, and blanks around
/// a token do not count, and a caller that knows a favourite's name could leave them out.
fn is_only((who, reading): Seen<'_>, name: &[u8]) -> bool {
    let mut known = reading.iter().flatten();
    known.all(|caller| {
        let text = String::from_utf8_lossy(caller);
        let bare = match who {
            Who::Cookie | Who::Path => text.trim_matches(['"', '/']),
            _ => text.trim_ascii(),
        };
        bare.as_bytes() == name
    })
}

/// True if the operator lets it pass for what it is. No call of a method of gRPC's is, and nothing at an annotated handler.
fn is_exempt(rule: &Rule, run: &Run) -> bool {
    if run.place.is_grpc || rule.on_demand {
        return false;
    }
    let head = &*run.head;
    (rule.exempts_preflights && is_preflight(head))
        || (rule.exempts_health_checks && !names_health(rule) && is_health_check(head))
}

/// True if what the list is of is on it.
fn is_listed(by: ExemptBy, run: &Run) -> bool {
    let head = &*run.head;
    match by {
        ExemptBy::Route => LISTED_ROUTES.iter().any(|route| is_at(route, head)),
        ExemptBy::Method => has(&LISTED_METHODS, &head.method),
        ExemptBy::Header => {
            let value = head.headers.get(HEADER);
            value.is_some_and(|value| value.as_bytes().trim_ascii() == FAVOURITE)
        }
    }
}

/// True for a budget of callers that state no identity, or several; of a compound key, of callers that agree in the other parts.
fn is_shared(key: &Key) -> bool {
    let mut rest = match key.kind() {
        KeyKind::Tuple => &key.as_bytes()[1..],
        _ => return *key == Key::missing(),
    };
    while let [length, behind @ ..] = rest {
        let (part, behind) = behind.split_at(usize::from(*length));
        if part == Key::missing().as_bytes() {
            return true;
        }
        rest = behind;
    }
    false
}

/// The most budgets that one caller spends: each part of an identity may be clear or not.
fn budgets_of_a_caller(who: Who) -> u64 {
    match who {
        Who::Parts(parts) => 1 << parts.len(),
        _ => 2,
    }
}

fn covers_path(rule: &Rule, run: &Run) -> bool {
    let path = run.head.uri.path();
    let is_at = |pattern: &str| is_at(pattern, &run.head);
    if rule.exempt_routes.iter().any(|pattern| is_at(pattern)) {
        return false;
    }
    if rule.routes.is_empty() && rule.grpc.is_empty() {
        return true;
    }
    let calls = |methods: &&str| {
        let (service, method) = methods.split_once('/').unwrap_or((methods, "*"));
        if run.place.is_grpc && !run.place.is_nested {
            let is_service = service == "shop.v1.Orders" || service == "shop.v1.*";
            return is_service && (method == "*" || method == run.place.name);
        }
        method != "*" && path.strip_prefix('/') == Some(methods)
    };
    rule.routes.iter().any(|pattern| is_at(pattern)) || rule.grpc.iter().any(calls)
}

/// True if axum has taken the request there, or would take its path there.
fn is_at(pattern: &str, head: &Head) -> bool {
    head.matched.as_deref() == Some(pattern) || routes_to(pattern, head.uri.path())
}

/// True if axum's router would take the path there.
fn routes_to(pattern: &str, path: &str) -> bool {
    let mut router = matchit::Router::new();
    router.insert(pattern, ()).unwrap();
    router.at(path).is_ok()
}

/// `GET` is `HEAD` too.
fn has(methods: &[Method], method: &Method) -> bool {
    methods.contains(method) || (*method == Method::HEAD && methods.contains(&Method::GET))
}

/// True if anything that a handler could take for the host is one of the policy's.
fn is_for_host(rule: &Rule, head: &Head) -> bool {
    let lines = head.headers.get_all(HOST).iter();
    let mut said: Vec<String> = lines
        .filter_map(|line| line.to_str().ok())
        .map(str::to_ascii_lowercase)
        .collect();
    said.extend(head.uri.host().map(str::to_ascii_lowercase));
    said.iter().any(|said| {
        let host = said.trim();
        let host = host.split_once(':').map_or(host, |(host, _)| host);
        let host = host.trim_end_matches('.');
        rule.hosts
            .iter()
            .any(|pattern| match pattern.strip_prefix('*') {
                None => host == *pattern,
                Some(below) => host.len() > below.len() && host.ends_with(below),
            })
    })
}

/// The readings of the request that are possible.
fn look(rule: &Rule, head: &Head) -> Look {
    let headers = &head.headers;
    if headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        Look::Preflight
    } else if head.uri.path().contains("/grpc.") {
        Look::HealthCheck
    } else if !rule.hosts.is_empty() {
        Look::Host
    } else if !rule.exempt_routes.is_empty() {
        Look::Path
    } else {
        Look::Plain
    }
}

/// The question of a browser: with what browsers put into it once each, and nothing that they leave out.
fn is_preflight(head: &Head) -> bool {
    let never = [CONTENT_TYPE, COOKIE, AUTHORIZATION, TE];
    let count = |name| head.headers.get_all(name).iter().count();
    head.method == Method::OPTIONS
        && count(ORIGIN) == 1
        && count(ACCESS_CONTROL_REQUEST_METHOD) == 1
        && never.into_iter().all(|name| count(name) == 0)
}

/// A call, by its method, its path and its only content type, of one of the methods of gRPC's own services.
fn is_health_check(head: &Head) -> bool {
    let mut types = head.headers.get_all(CONTENT_TYPE).iter();
    let is_grpc = |value: &HeaderValue| {
        let rest = value.as_bytes().strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
    };
    let is_call = types.next().is_some_and(is_grpc) && types.next().is_none();
    let methods = [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ];
    head.method == Method::POST && is_call && methods.contains(&head.uri.path())
}

/// True if the policy names a service for health checks, which goes before its exemption.
fn names_health(rule: &Rule) -> bool {
    let mut named = rule.routes.iter().chain(&rule.grpc);
    named.any(|named| named.contains("grpc.health"))
}

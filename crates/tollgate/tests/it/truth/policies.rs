//! Policies, drawn at random.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use fastrand::Rng;
use http::Method;
use tollgate::key::{
    self, BasicUser, BearerToken, Cookie, FormField, Global, Header, Host, JsonField, KeyList,
    MatchedRoute, Metadata, PathParam, Query,
};
use tollgate::{
    Ban, Block, ClientIp, Key, Limiter, Messages, OnMissing, Policy, Quota, Quotas, Tiers,
};

use crate::truth::campaign::poll;
use crate::truth::readings::{BINARY, COOKIE, FIELD, HEADER, METADATA, PARAM, QUERY, Who};
use crate::truth::services::{Around, Spec};
use crate::truth::weaknesses::Weakness;

/// A policy as its operator thinks of it.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) routes: Vec<&'static str>,
    pub(crate) exempt_routes: Vec<&'static str>,
    pub(crate) grpc: Vec<&'static str>,
    pub(crate) methods: Vec<Method>,
    pub(crate) exempt_methods: Vec<Method>,
    pub(crate) hosts: Vec<&'static str>,
    pub(crate) exempts_preflights: bool,
    pub(crate) exempts_health_checks: bool,
    pub(crate) exempt_by: Option<ExemptBy>,
    pub(crate) who: Who,
    /// True if it has favourites, and callers that it refuses.
    pub(crate) favours: Option<Favours>,
    pub(crate) on_missing: OnMissing,
    pub(crate) per_message: bool,
    /// Only for handlers that name it.
    pub(crate) on_demand: bool,
    pub(crate) limit: u64,
    /// The fault of the policy, where it is to be caught.
    pub(crate) weakness: Option<Weakness>,
}

/// A list of what a policy does not cover, which is made of something else than whose budget it spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExemptBy {
    Route,
    Method,
    Header,
}

/// The way in which a policy knows its favourite, and the caller that it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Favours {
    Lists,
    Tiers,
    /// The refused caller is banned by hand.
    Bans,
    TiersAsked,
}

/// The callers that are never charged, and those that never pass, under a policy that favours.
pub(crate) const FAVOURITE: &[u8] = b"abc";
pub(crate) const REFUSED: &[u8] = b"zzz";
/// The number of a caller that never passes where typed extractors read numbers, and how the operator spells it.
pub(crate) const REFUSED_NUMBER: f64 = 7.0;
const REFUSED_NUMBER_LISTED: &[u8] = b"+007";
/// The host that never passes where callers are hosts, and how the operator spells it.
pub(crate) const REFUSED_HOST: &[u8] = b"other.test";
const REFUSED_HOST_LISTED: &[u8] = b"Other.Test.";
static ALL_REFUSED: [&[u8]; 3] = [REFUSED, REFUSED_NUMBER_LISTED, REFUSED_HOST_LISTED];
const HOUR: Duration = Duration::from_secs(3_600);
/// A ban that hardly any denials bring about.
const BAN: Ban = Ban::after(64, HOUR).lasting(HOUR);
/// The entries of lists.
pub(crate) const LISTED_ROUTES: [&str; 2] = ["/items/{id}", "/in/x"];
pub(crate) const LISTED_METHODS: [Method; 2] = [Method::PUT, Method::GET];

/// The policy that handlers name, if a service has one.
pub(crate) const NAMED: &str = "named";
/// So much that no request is refused, and each shows its caller.
pub(crate) const PLENTY: u64 = 1_000_000;

const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];
const ROUTES: [&str; 15] = [
    "/any",
    "/get",
    "/both",
    "/options",
    "/items/{id}",
    "/files/{*path}",
    "/in/x",
    "/in/{id}",
    "/merged",
    "/{a}",
    "/{*all}",
    "/shop.v1.Orders/{method}",
    "/api/shop.v1.Orders/{method}",
    "/api/{*rest}",
    "/grpc.health.v1.Health/{method}",
];
const ITEMS: [&str; 1] = ["/items/{id}"];
const EXEMPT_ROUTES: [&str; 5] = ["/any", "/both", "/files/{*path}", "/in/x", "/open"];
const GRPC: [&str; 5] = [
    "shop.v1.Orders/Place",
    "shop.v1.Orders/Upload",
    "shop.v1.Orders/*",
    "shop.v1.*",
    "grpc.health.v1.Health/*",
];
const HOSTS: [&str; 2] = ["api.example.com", "*.example.com"];

impl Rule {
    pub(crate) fn every(name: &'static str) -> Self {
        Self {
            name,
            routes: Vec::new(),
            exempt_routes: Vec::new(),
            grpc: Vec::new(),
            methods: Vec::new(),
            exempt_methods: Vec::new(),
            hosts: Vec::new(),
            exempts_preflights: false,
            exempts_health_checks: false,
            exempt_by: None,
            who: Who::All,
            favours: None,
            on_missing: OnMissing::Share,
            per_message: false,
            on_demand: false,
            limit: PLENTY,
            weakness: None,
        }
    }

    pub(crate) fn draw(rng: &mut Rng, name: &'static str) -> Self {
        let mut rule = Self::every(name);
        rule.who = draw_who(rng);
        rule.on_missing = draw_on_missing(rng);
        match rng.u8(0..10) {
            0..=2 => {}
            3..=6 => rule.routes = draw_some(rng, &ROUTES),
            _ => rule.grpc = draw_some(rng, &GRPC),
        }
        // An identity in a path is known where the policy names the path, and where axum has matched it.
        if rule.who == Who::Path {
            rule.routes = if rng.bool() {
                ITEMS.to_vec()
            } else {
                Vec::new()
            };
            rule.grpc = Vec::new();
        }
        if rng.u8(0..5) == 0 {
            rule.exempt_routes = draw_some(rng, &EXEMPT_ROUTES);
        }
        if rng.u8(0..5) == 0 {
            rule.methods = draw_some(rng, &[Method::GET, Method::POST, Method::OPTIONS]);
        }
        if rng.u8(0..8) == 0 {
            rule.exempt_methods = draw_some(rng, &[Method::GET, Method::OPTIONS, Method::PUT]);
        }
        if rng.u8(0..4) == 0 {
            rule.hosts = draw_some(rng, &HOSTS);
        }
        rule.exempts_preflights = rng.u8(0..4) == 0;
        rule.exempts_health_checks = rng.u8(0..4) == 0;
        if rng.u8(0..4) == 0 {
            let all = [ExemptBy::Route, ExemptBy::Method, ExemptBy::Header];
            rule.exempt_by = rng.choice(all);
        }
        // Where axum has matched nothing, the policy's own routes are looked for on the list.
        if rule.exempt_by == Some(ExemptBy::Route) && rule.who != Who::Path {
            rule.routes = [&LISTED_ROUTES[..], &["/{*all}"]].concat();
            rule.grpc = Vec::new();
        }
        if rng.u8(0..3) == 0 {
            rule.favours = draw_favours(rng, rule.who);
        }
        if rng.u8(0..3) == 0 {
            rule.limit = rng.u64(1..=4);
        }
        rule
    }

    /// Some policies of one limiter, of which one may be for messages.
    pub(crate) fn draw_several(rng: &mut Rng, spec: &Spec) -> Vec<Self> {
        let count = rng.usize(1..=3);
        let mut rules: Vec<_> = NAMES[..count]
            .iter()
            .map(|name| Self::draw(rng, name))
            .collect();
        // A layer inside the limiter matters to few identities.
        if spec.around == Around::Rewritten && rng.bool() {
            rules[0].who = Who::Path;
            rules[0].routes.clear();
            rules[0].grpc.clear();
        } else if spec.decompresses && rng.u8(0..3) == 0 {
            rules[0].who = Who::Form;
        }
        // Refused callers show nothing more, so most services refuse none.
        if rng.u8(0..4) != 0 {
            for rule in &mut rules {
                rule.limit = PLENTY;
            }
        }
        if rng.bool() {
            let mut messages = Self::every("messages");
            messages.who = *rng.choice(&[Who::Peer, Who::All, Who::Metadata]).unwrap();
            // Without a path the layer has to find out what a call is.
            if rng.u8(0..4) != 0 {
                messages.grpc = draw_some(rng, &GRPC[..4]);
            }
            messages.per_message = true;
            messages.exempts_preflights = rng.bool();
            if rng.bool() {
                messages.favours = draw_favours(rng, messages.who);
            }
            messages.limit = rng.choice([PLENTY, 12]).unwrap();
            rules.push(messages);
        }
        let mut named = Self::every(NAMED);
        named.who = draw_who(rng);
        named.on_demand = true;
        named.exempts_preflights = rng.bool();
        if named.who == Who::Path {
            named.who = Who::Peer;
        }
        named.favours = draw_favours(rng, named.who).filter(|_| rng.bool());
        rules.push(named);
        // Outside of a router the route is not known yet.
        if spec.around == Around::Service {
            for rule in &mut rules {
                if rule.who == Who::Path {
                    rule.routes = ITEMS.to_vec();
                }
                rule.who = match rule.who {
                    Who::Route => Who::Method,
                    Who::Parts(parts) if parts.contains(&Who::Route) => Who::Parts(PARTS[0]),
                    who => who,
                };
            }
        }
        rules
    }

    /// The policy, or nothing if it contradicts itself.
    pub(crate) fn policy(&self) -> Option<Policy> {
        let mut policy = Policy::new(self.name, Quota::per_hour(self.limit));
        let mut covered = self.clone();
        if let Some(weakness) = self.weakness {
            policy = weakness.weaken(policy, &mut covered);
        } else {
            policy = keyed(policy, self.who);
        }
        for route in &covered.routes {
            policy = policy.route(route);
        }
        for methods in &covered.grpc {
            policy = policy.grpc(methods);
        }
        for route in &covered.exempt_routes {
            policy = policy.exempt_route(route);
        }
        for method in &covered.methods {
            policy = policy.method(method.clone());
        }
        for method in &covered.exempt_methods {
            policy = policy.exempt_method(method.clone());
        }
        for host in &covered.hosts {
            policy = policy.host(host);
        }
        if covered.exempts_preflights {
            policy = policy.exempt_preflights();
        }
        if covered.exempts_health_checks {
            policy = policy.exempt_health_checks();
        }
        policy = match covered.exempt_by {
            None => policy,
            Some(ExemptBy::Route) => {
                policy.exempt_by(MatchedRoute, KeyList::from_iter(LISTED_ROUTES))
            }
            Some(ExemptBy::Method) => {
                let names = LISTED_METHODS.map(|method| method.to_string());
                policy.exempt_by(key::Method, KeyList::from_iter(names))
            }
            Some(ExemptBy::Header) => {
                policy.exempt_by(Header::new(HEADER), KeyList::from_iter([FAVOURITE]))
            }
        };
        policy = match covered.favours {
            None => policy,
            Some(Favours::Lists) => policy
                .exempt_keys(self.favourites())
                .block_keys(KeyList::from_iter(self.refused()), Block::Forbidden),
            Some(Favours::Tiers) => {
                let free = identities(self.who, &[FAVOURITE]).map(|key| (key, "free"));
                let closed = self.refused().map(|key| (key, "closed"));
                policy.tiers(with_tiers(Tiers::by_key(free.chain(closed))))
            }
            Some(Favours::Bans) => policy.exempt_keys(self.favourites()).ban(BAN),
            Some(Favours::TiersAsked) => {
                policy.tiers(with_tiers(Tiers::by(|key, _| match key.content() {
                    FAVOURITE => Some("free"),
                    REFUSED | b"7" | REFUSED_HOST => Some("closed"),
                    _ => None,
                })))
            }
        };
        if covered.per_message {
            policy = policy.per_message(Messages::received().end_stream());
        }
        if covered.on_demand {
            policy = policy.on_demand();
        }
        Some(policy.on_missing(covered.on_missing))
    }

    fn favourites(&self) -> KeyList {
        KeyList::from_iter(identities(self.who, &[FAVOURITE]))
    }

    /// The callers that never pass if it favours, as the operator spells them.
    fn refused(&self) -> impl Iterator<Item = Key> {
        identities(self.who, &ALL_REFUSED)
    }

    /// Bans by hand the callers that never pass, if the policy is to know them so.
    pub(crate) fn ban(&self, limiter: &Limiter) {
        if self.favours != Some(Favours::Bans) {
            return;
        }
        for refused in self.refused() {
            let banned = pin!(limiter.ban(self.name, refused, HOUR));
            // Memory decides immediately.
            poll(banned).unwrap().unwrap();
        }
    }

    /// True if the policy can be an interceptor's.
    pub(crate) fn fits_an_interceptor(&self) -> bool {
        let has_key = matches!(
            self.who,
            Who::Peer | Who::All | Who::Header | Who::Cookie | Who::Metadata | Who::BinaryMetadata
        );
        let is_plain = self.routes.is_empty() && self.grpc.is_empty() && self.hosts.is_empty();
        let is_plain = is_plain && self.exempt_by.is_none() && self.favours != Some(Favours::Bans);
        has_key && is_plain && self.exempt_routes.is_empty() && self.methods.is_empty()
    }
}

impl fmt::Debug for Rule {
    /// The deviations from the usual policy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        write!(f, "policy {:?}, {limit} for each {:?}", self.name, self.who)?;
        write!(f, ", on missing {:?}", self.on_missing)?;
        let lists = [
            ("routes", format!("{:?}", self.routes)),
            ("gRPC", format!("{:?}", self.grpc)),
            ("exempt routes", format!("{:?}", self.exempt_routes)),
            ("methods", format!("{:?}", self.methods)),
            ("exempt methods", format!("{:?}", self.exempt_methods)),
            ("hosts", format!("{:?}", self.hosts)),
        ];
        for (name, list) in lists.iter().filter(|(_, list)| list != "[]") {
            write!(f, ", {name} {list}")?;
        }
        if let Some(exempt_by) = self.exempt_by {
            write!(f, ", exempt by {exempt_by:?}")?;
        }
        if let Some(favours) = self.favours {
            write!(f, ", favours by {favours:?}")?;
        }
        let flags = [
            ("exempts preflights", self.exempts_preflights),
            ("exempts health checks", self.exempts_health_checks),
            ("per message", self.per_message),
            ("on demand", self.on_demand),
        ];
        for (name, _) in flags.iter().filter(|(_, is_set)| *is_set) {
            write!(f, ", {name}")?;
        }
        match self.weakness {
            None => Ok(()),
            Some(weakness) => write!(f, ", weak: {weakness:?}"),
        }
    }
}

fn keyed(policy: Policy, who: Who) -> Policy {
    match who {
        Who::Peer => policy.key(ClientIp),
        Who::All => policy.key(Global),
        Who::Header => policy.key(Header::new(HEADER)),
        Who::Cookie => policy.key(Cookie::new(COOKIE)),
        Who::Bearer => policy.key(BearerToken),
        Who::BasicUser => policy.key(BasicUser),
        Who::Host => policy.key(Host),
        Who::Query => policy.key(Query::new(QUERY)),
        Who::Path => policy.key(PathParam::new(PARAM)),
        Who::Form => policy.key(FormField::new(FIELD)),
        Who::Json => policy.key(JsonField::new(FIELD)),
        Who::Metadata => policy.key(Metadata::new(METADATA)),
        Who::BinaryMetadata => policy.key(Metadata::new(BINARY)),
        Who::Route => policy.key(MatchedRoute),
        Who::Method => policy.key(key::Method),
        Who::Parts([Who::Peer, Who::Header]) => policy.key((ClientIp, Header::new(HEADER))),
        Who::Parts([Who::Header, Who::Query]) => {
            policy.key((Header::new(HEADER), Query::new(QUERY)))
        }
        Who::Parts([Who::Cookie, Who::Form]) => {
            policy.key((Cookie::new(COOKIE), FormField::new(FIELD)))
        }
        Who::Parts([Who::Peer, Who::Route, Who::Method]) => {
            policy.key((ClientIp, MatchedRoute, key::Method))
        }
        Who::Parts(parts) => panic!("{parts:?}"),
    }
}

/// The parts of identities with several parts.
const PARTS: [&[Who]; 4] = [
    &[Who::Peer, Who::Header],
    &[Who::Header, Who::Query],
    &[Who::Cookie, Who::Form],
    &[Who::Peer, Who::Route, Who::Method],
];

/// The identities with these names, of which one with two parts has each beside each.
fn identities(who: Who, names: &'static [&[u8]]) -> Box<dyn Iterator<Item = Key>> {
    match who {
        Who::Parts(_) => Box::new(names.iter().flat_map(move |one| {
            let pairs = names.iter().map(move |other| (*one, *other));
            pairs.map(Key::from)
        })),
        // A name of a host has no sign, and an entry with one is refused.
        Who::Host => Box::new(
            names
                .iter()
                .filter(|name| !name.contains(&b'+'))
                .map(|name| Key::from(*name)),
        ),
        _ => Box::new(names.iter().map(|name| Key::from(*name))),
    }
}

fn with_tiers(tiers: Tiers) -> Tiers {
    tiers.unlimited("free").tier("closed", Quotas::none())
}

/// A policy has favourites only where they can be told by name.
fn draw_favours(rng: &mut Rng, who: Who) -> Option<Favours> {
    let has_names = matches!(
        who,
        Who::Header
            | Who::Cookie
            | Who::Bearer
            | Who::BasicUser
            | Who::Query
            | Who::Path
            | Who::Form
            | Who::Json
            | Who::Metadata
            | Who::BinaryMetadata
            | Who::Host
            | Who::Parts([Who::Header, Who::Query] | [Who::Cookie, Who::Form])
    );
    let all = [
        Favours::Lists,
        Favours::Tiers,
        Favours::Bans,
        Favours::TiersAsked,
    ];
    // A closure that knows names would have to take an identity of several parts apart.
    let all = if who.parts().is_empty() {
        &all[..]
    } else {
        &all[..3]
    };
    rng.choice(all).copied().filter(|_| has_names)
}

fn draw_who(rng: &mut Rng) -> Who {
    let all = [
        Who::Peer,
        Who::All,
        Who::Header,
        Who::Cookie,
        Who::Bearer,
        Who::BasicUser,
        Who::Query,
        Who::Path,
        Who::Host,
        Who::Form,
        Who::Json,
        Who::Metadata,
        Who::BinaryMetadata,
        Who::Route,
        Who::Method,
        Who::Parts(PARTS[0]),
        Who::Parts(PARTS[1]),
        Who::Parts(PARTS[2]),
        Who::Parts(PARTS[3]),
    ];
    *rng.choice(&all).unwrap()
}

fn draw_on_missing(rng: &mut Rng) -> OnMissing {
    let all = [OnMissing::Share, OnMissing::Pass, OnMissing::Deny];
    *rng.choice(&all).unwrap()
}

fn draw_some<T: Clone>(rng: &mut Rng, of: &[T]) -> Vec<T> {
    let count = rng.usize(1..=2);
    rng.choose_multiple(of.iter().cloned(), count)
}

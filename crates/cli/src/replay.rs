//! Requests of a log, decided by the library's limiter on the log's own time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, Uri};
use tollgate::config::{
    ClientAddressConfig, CostConfig, KeyConfig, LimiterConfig, PolicyConfig, QuotasConfig,
};
use tollgate::{
    Cause, Event, Key, KeyKind, Limiter, ManualClock, MemoryBackend, PeerAddr, Policy, Timestamp,
};
use tollgate_limiter::transport::{Admission, Ledger, PolicySet, Ruling};

use crate::failure::Failure;
use crate::limits::{Kind, Limits, LoggedCost, quotas_of};
use crate::log::Entry;

/// The keys that the memory backend may hold: more callers than a log of a day has, so that none is forgotten.
const MOST_KEYS: usize = 16_000_000;

/// A limiter that decides requests of a log.
pub(crate) struct Replay {
    limits: Limits,
    clock: ManualClock,
    request: Request<()>,
    /// True if nothing but the caller's address matters.
    is_by_address: bool,
    /// The policies that limit how many requests are under way.
    held_by: Vec<String>,
    /// By policy, true for those.
    holds: Vec<bool>,
    /// The requests that are under way and hold something, the first to end first.
    under_way: BinaryHeap<Reverse<UnderWay>>,
    admitted: u64,
    heard: Arc<Mutex<Vec<PolicyDecision>>>,
    names: Vec<String>,
    /// By policy; nothing for those without tiers.
    tiers: Vec<Option<Tiers>>,
    /// The policies that charge the logged cost of a request.
    costed: Vec<bool>,
    left_out: Vec<String>,
}

/// A request that is under way.
#[derive(Debug)]
struct UnderWay {
    end_us: u64,
    /// Requests that end at one time end in the order in which they came.
    number: u64,
    ledger: Ledger,
}

impl PartialEq for UnderWay {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for UnderWay {}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnderWay {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.end_us, self.number).cmp(&(other.end_us, other.number))
    }
}

/// A decision that the limiter told of.
#[derive(Debug)]
struct PolicyDecision {
    policy: usize,
    key: Option<Key>,
    is_denied: bool,
    is_enforced: bool,
    /// True if nothing was asked, because the caller or the request is free.
    is_exempt: bool,
}

/// The tiers of a policy.
struct Tiers {
    policy: Arc<Policy>,
    names: Vec<String>,
    /// True for those without limits.
    are_free: Vec<bool>,
}

impl Tiers {
    fn of(config: &PolicyConfig, limiter: &Limiter) -> Option<Self> {
        let tiers = config.tiers.as_ref()?;
        let mut policies = limiter.policies().into_iter();
        let is_free = |quotas: &QuotasConfig| matches!(quotas, QuotasConfig::One(text) if text == "unlimited");
        Some(Self {
            policy: policies.find(|policy| policy.name() == config.name)?,
            names: tiers.quotas.keys().cloned().collect(),
            are_free: tiers.quotas.values().map(is_free).collect(),
        })
    }

    fn place(&self, key: &Key) -> Option<usize> {
        let name = self.policy.tier_of(key)?;
        self.names.iter().position(|known| known == name)
    }
}

/// The decision of a policy with tiers.
#[derive(Debug)]
pub(crate) struct TierDecision {
    pub(crate) policy: usize,
    /// Nothing for a caller in none.
    pub(crate) tier: Option<usize>,
    pub(crate) caller: Option<Key>,
    pub(crate) is_refused: bool,
    pub(crate) is_on_trial: bool,
}

/// The decision about one request. It is filled anew for each.
#[derive(Debug, Default)]
pub(crate) struct RequestDecision {
    /// The policy that refused the request, and the caller as this policy tells callers apart.
    pub(crate) refused: Option<(usize, Option<Key>)>,
    /// Policies on trial that would have refused it.
    pub(crate) on_trial: Vec<(usize, Option<Key>)>,
    /// Policies that found no identity in it.
    pub(crate) unidentified: Vec<usize>,
    /// Policies that limit how many requests are under way, and whose places it asked for.
    pub(crate) places: Vec<(usize, Key)>,
    /// The decisions of policies with tiers.
    pub(crate) by_tier: Vec<TierDecision>,
    /// Policies that cover it.
    pub(crate) covered: Vec<usize>,
    /// True if no server routes such a target.
    pub(crate) is_unroutable: bool,
}

impl Replay {
    /// The limiter of a file, without those of its policies that are named.
    pub(crate) fn of(path: &Path, without: &[String]) -> Result<Self, Failure> {
        let clock = ManualClock::new();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let whole = Limits::read(path, |_| {}, |builder| builder).map_err(Failure::invalid)?;
        let mut config = whole.config().clone();
        replayable(&mut config, without);
        let name = |policy: &PolicyConfig| policy.name.clone();
        let names: Vec<String> = config.policies.iter().map(name).collect();
        let left_out = whole.config().policies.iter().map(name);
        let left_out = left_out.filter(|name| !names.contains(name)).collect();
        let policies = config.policies.iter();
        let held_by = policies.filter(|policy| quotas_of(policy).any(|quota| quota.is_held()));
        let held_by: Vec<_> = held_by.map(name).collect();
        let holds = names.iter().map(|name| held_by.contains(name)).collect();
        let policies = config.policies.iter();
        let costed = policies.map(|policy| matches!(policy.cost, CostConfig::Registered(_)));
        let costed = costed.collect();
        let is_by_address = is_by_address(&config) && held_by.is_empty();
        let backend = MemoryBackend::builder()
            .max_keys(MOST_KEYS)
            .clock(clock.clone())
            .build();
        let without = without.to_vec();
        let adjust = move |config: &mut LimiterConfig| replayable(config, &without);
        let limits = Limits::read(path, adjust, |builder| {
            let builder = builder.backend(backend);
            if is_by_address {
                return builder;
            }
            let (names, heard) = (names.clone(), Arc::clone(&heard));
            builder.observe(move |event: &Event<'_>| hear(event, &names, &heard))
        });
        let limits = limits.map_err(Failure::invalid)?;
        refuse_what_a_log_cannot_decide(path, &limits)?;
        let limiter = limits.limiter();
        let tiers = config.policies.iter();
        let tiers = tiers.map(|config| Tiers::of(config, limiter)).collect();
        let mut request = Request::new(());
        request
            .extensions_mut()
            .insert(PeerAddr(SocketAddr::from(([0, 0, 0, 0], 0))));
        Ok(Self {
            limits,
            clock,
            request,
            is_by_address,
            held_by,
            holds,
            under_way: BinaryHeap::new(),
            admitted: 0,
            heard,
            names,
            tiers,
            costed,
            left_out,
        })
    }

    /// The names of the policies.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The names of policies that take no part: those that the operator left out, those of messages, and those that only the code
    /// of the service charges.
    pub(crate) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// True if one policy limits each address, and nothing else matters.
    pub(crate) fn is_by_address(&self) -> bool {
        self.is_by_address
    }

    /// The caller as policies by address tell callers apart.
    pub(crate) fn caller(&self, address: IpAddr) -> Key {
        self.limits.limiter().client_key(address)
    }

    /// True for each policy that charges what the log has as the cost of a request.
    pub(crate) fn costed(&self) -> &[bool] {
        &self.costed
    }

    /// The names of the tiers of each policy, if it has any.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = Option<&[String]>> {
        let tiers = self.tiers.iter();
        tiers.map(|tiers| tiers.as_ref().map(|tiers| &*tiers.names))
    }

    /// True if it matters how long a request is under way.
    pub(crate) fn needs_durations(&self) -> bool {
        !self.held_by.is_empty()
    }

    /// The part of a line without which a request cannot be decided.
    #[inline]
    pub(crate) fn lacking(&mut self, entry: &Entry<'_>) -> Option<String> {
        if self.held_by.is_empty() || entry.duration_us().is_some() {
            return None;
        }
        self.put_caller(entry);
        self.put(entry)?;
        let limiter = self.limits.limiter();
        let mut policies = limiter.unmet(&limiter.view(&self.request)).into_iter();
        let covers = |(policy, unmet): &(Arc<Policy>, Option<_>)| {
            unmet.is_none() && self.held_by.iter().any(|name| name == policy.name())
        };
        let (policy, _) = policies.find(covers)?;
        let policy = policy.name();
        Some(format!(
            "policy {policy} limits how many requests are under way, and the line does not tell how long this one took; log it, as duration_us in lines of JSON, or leave the policy out with --without {policy}"
        ))
    }

    /// Decides a request at its time.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        entry: &Entry<'_>,
        decided: &mut RequestDecision,
    ) -> Result<(), Failure> {
        if !self.held_by.is_empty() {
            self.end_requests(entry.time_us);
        }
        self.clock.set(Timestamp::from_micros(entry.time_us));
        self.put_caller(entry);
        decided.refused = None;
        if self.is_by_address {
            // Such a request is answered before any layer sees it.
            decided.is_unroutable = !is_plain(entry) && self.put(entry).is_none();
            if decided.is_unroutable {
                return Ok(());
            }
            if self.is_denied(entry)? {
                decided.refused = Some((0, Some(self.caller(entry.caller))));
            }
            return Ok(());
        }
        self.decide_by_all_of_it(entry, decided)
    }

    /// Ends the requests that are over when this one comes, each at its own time.
    fn end_requests(&mut self, time_us: u64) {
        let is_over = |next: &Reverse<UnderWay>| next.0.end_us <= time_us;
        while self.under_way.peek().is_some_and(is_over) {
            if let Some(Reverse(mut over)) = self.under_way.pop() {
                self.clock.set(Timestamp::from_micros(over.end_us));
                over.ledger.release();
            }
        }
    }

    #[inline]
    fn is_denied(&mut self, entry: &Entry<'_>) -> Result<bool, Failure> {
        let limiter = self.limits.limiter();
        let view = limiter.view(&self.request);
        let holds = !self.held_by.is_empty();
        let ruled = |ruling: Ruling<'_>| match ruling {
            // A policy on trial may hold something of a request that another one refuses. The answer to that is given at once.
            Ruling::Denied(judgement) if holds => {
                judgement.ledger().release();
                (true, None)
            }
            Ruling::Denied(_) | Ruling::Refused(_) => (true, None),
            Ruling::Admitted(judgement) if holds => (false, Some(judgement.ledger())),
            _ => (false, None),
        };
        match limiter.admit(&view, PolicySet::Covering, || true, ruled) {
            Admission::Ruled((is_denied, ledger)) => {
                if let Some(ledger) = ledger.filter(Ledger::holds) {
                    self.admitted += 1;
                    let duration_us = entry.duration_us().unwrap_or_default();
                    self.under_way.push(Reverse(UnderWay {
                        end_us: entry.time_us.saturating_add(duration_us),
                        number: self.admitted,
                        ledger,
                    }));
                }
                Ok(is_denied)
            }
            Admission::Pending(_) => Err(Failure::invalid(
                "a request would have to wait for its decision, and a log does not tell how long it would stay",
            )),
        }
    }

    fn decide_by_all_of_it(
        &mut self,
        entry: &Entry<'_>,
        decided: &mut RequestDecision,
    ) -> Result<(), Failure> {
        decided.on_trial.clear();
        decided.unidentified.clear();
        decided.covered.clear();
        decided.by_tier.clear();
        decided.places.clear();
        decided.is_unroutable = self.put(entry).is_none();
        if decided.is_unroutable {
            return Ok(());
        }
        lock(&self.heard).clear();
        let is_denied = self.is_denied(entry)?;
        for heard in lock(&self.heard).drain(..) {
            if let Some(tiers) = &self.tiers[heard.policy] {
                count_tier(tiers, &heard, is_denied, &mut decided.by_tier);
            }
            if heard.is_exempt {
                continue;
            }
            let PolicyDecision { policy, key, .. } = heard;
            let is_counted = decided.places.last().is_some_and(|last| last.0 == policy);
            if let Some(key) = key.clone().filter(|_| self.holds[policy] && !is_counted) {
                decided.places.push((policy, key));
            }
            if decided.covered.last() != Some(&policy) {
                decided.covered.push(policy);
            }
            let is_missing = key
                .as_ref()
                .is_none_or(|key| key.kind() == KeyKind::Missing);
            if is_missing && decided.unidentified.last() != Some(&policy) {
                decided.unidentified.push(policy);
            }
            if !heard.is_denied {
            } else if heard.is_enforced && is_denied {
                decided.refused.get_or_insert((policy, key));
            } else if !decided.on_trial.iter().any(|(known, _)| *known == policy) {
                decided.on_trial.push((policy, key));
            }
        }
        Ok(())
    }

    #[inline]
    fn put_caller(&mut self, entry: &Entry<'_>) {
        let peer = SocketAddr::new(entry.caller, 0);
        match self.request.extensions_mut().get_mut() {
            Some(PeerAddr(address)) => *address = peer,
            None => drop(self.request.extensions_mut().insert(PeerAddr(peer))),
        }
    }

    /// Makes the request of a line of the log.
    fn put(&mut self, entry: &Entry<'_>) -> Option<()> {
        *self.request.method_mut() = Method::from_bytes(&entry.method).ok()?;
        *self.request.uri_mut() = Uri::try_from(&*entry.target).ok()?;
        let headers = self.request.headers_mut();
        headers.clear();
        for (name, value) in [
            (HOST, entry.host.as_deref()),
            (USER_AGENT, entry.user_agent()),
        ] {
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_bytes(value).ok()?);
            }
        }
        for (name, value) in &entry.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        }
        self.request
            .extensions_mut()
            .insert(LoggedCost(entry.cost.unwrap_or(1)));
        Some(())
    }
}

/// True for a request that any server routes, by what almost all requests consist of. Of others it is not known.
#[inline]
fn is_plain(entry: &Entry<'_>) -> bool {
    let is_field = |value: Option<&[u8]>| {
        value.is_none_or(|value| value.iter().all(|byte| matches!(byte, b' '..=b'~')))
    };
    !entry.method.is_empty()
        && entry.method.iter().all(u8::is_ascii_uppercase)
        && entry.target.starts_with(b"/")
        && entry.target.len() <= LONGEST_PLAIN
        && entry.target.iter().all(|byte| PLAIN[usize::from(*byte)])
        && is_field(entry.host.as_deref())
        && is_field(entry.read_user_agent())
        && entry.headers.is_empty()
}

/// The longest target of which it is said without a closer look that a server routes it.
const LONGEST_PLAIN: usize = 2_048;

/// By byte, true for those that a target may have anywhere.
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        plain[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'/' | b'-' | b'.' | b'_' | b'?' | b'=' | b'&' | b'%');
        byte += 1;
    }
    plain
};

/// Counts a decision for the tier of its caller. A policy decides once for each of its quotas.
fn count_tier(
    tiers: &Tiers,
    heard: &PolicyDecision,
    is_denied: bool,
    by_tier: &mut Vec<TierDecision>,
) {
    let tier = heard.key.as_ref().and_then(|key| tiers.place(key));
    // A list or the kind of a request frees whatever the tier is.
    if heard.is_exempt && !tier.is_some_and(|tier| tiers.are_free[tier]) {
        return;
    }
    let is_refused = heard.is_denied && heard.is_enforced && is_denied;
    let is_on_trial = heard.is_denied && !is_refused;
    match by_tier.last_mut() {
        Some(last) if last.policy == heard.policy => {
            last.is_refused |= is_refused;
            last.is_on_trial |= is_on_trial;
        }
        _ => by_tier.push(TierDecision {
            policy: heard.policy,
            tier,
            caller: heard.key.clone(),
            is_refused,
            is_on_trial,
        }),
    }
}

fn lock(heard: &Mutex<Vec<PolicyDecision>>) -> MutexGuard<'_, Vec<PolicyDecision>> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hear(event: &Event<'_>, names: &[String], heard: &Mutex<Vec<PolicyDecision>>) {
    let is_denied = match event.cause() {
        Cause::Backend | Cause::Known | Cause::Leased | Cause::Replayed => {
            event.verdict().is_some_and(tollgate::Verdict::is_denied)
        }
        Cause::Blocked | Cause::Unidentified | Cause::TierUnknown => true,
        Cause::Exempt => false,
        _ => return,
    };
    let Some(policy) = names.iter().position(|name| name == event.policy()) else {
        return;
    };
    lock(heard).push(PolicyDecision {
        policy,
        key: event.key().cloned().map(Key::compact),
        is_denied,
        is_enforced: event.is_enforced(),
        is_exempt: event.cause() == Cause::Exempt,
    });
}

/// Leaves out what no line of a log is: messages of streams, and what only the code of the service charges. The address in the log
/// is the caller's already.
fn replayable(config: &mut LimiterConfig, without: &[String]) {
    config.client_address = ClientAddressConfig::Peer;
    config.policies.retain(|policy| {
        let is_left_out = without.contains(&policy.name);
        !is_left_out && !policy.on_demand && policy.per_message.is_none()
    });
}

/// True if one policy limits each address, and nothing else matters.
fn is_by_address(config: &LimiterConfig) -> bool {
    let [policy] = config.policies.as_slice() else {
        return false;
    };
    let mut plain = PolicyConfig::default();
    plain.name.clone_from(&policy.name);
    plain.quotas.clone_from(&policy.quotas);
    plain.on_failure = policy.on_failure;
    plain.retry_hint = policy.retry_hint;
    plain.cost.clone_from(&policy.cost);
    plain.key.clone_from(&policy.key);
    let is_of_address = matches!(policy.key, None | Some(KeyConfig::ByClientIp));
    let has_one_cost = matches!(policy.cost, CostConfig::Fixed(_));
    let is_free = config.exempt_preflights || config.exempt_health_checks;
    plain == *policy && is_of_address && has_one_cost && !is_free
}

/// Refuses policies whose decisions depend on what no log holds.
fn refuse_what_a_log_cannot_decide(path: &Path, limits: &Limits) -> Result<(), Failure> {
    let mut reasons = Vec::new();
    for name in limits.registered() {
        let (policy, kind) = match (&name.policy, name.kind) {
            // A replay knows of no pressure, and the log may have a cost.
            (None, _) | (_, Kind::Cost) => continue,
            (Some(policy), kind) => (policy.clone(), kind.words()),
        };
        let reason = format!(
            "it needs the {kind} {:?}, which only the service has",
            name.name
        );
        reasons.push((policy, reason));
    }
    for policy in &limits.config().policies {
        if quotas_of(policy).any(|quota| quota.waits()) {
            let reason = "it lets requests wait, and a log does not tell which callers would stay";
            reasons.push((policy.name.clone(), reason.to_owned()));
        }
    }
    let Some((policy, _)) = reasons.first() else {
        return Ok(());
    };
    let mut message = format!(
        "{}: not every policy can be replayed; leave those out, as with --without {policy}",
        path.display()
    );
    for (policy, reason) in &reasons {
        message += &format!("\n  policy {policy}: {reason}");
    }
    Err(Failure::invalid(message))
}

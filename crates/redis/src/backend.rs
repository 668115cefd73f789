//! The backend.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{
    Admin, Answer, Backend, BackendError, BanList, Call, Capabilities, Capability, Charge,
    Decision, Figure, Key, Quota, Receipt, Scope, Settlement, Timestamp, Unit,
};

use crate::bans;
use crate::config::{RedisBackendBuilder, Topology};
use crate::error::ConnectError;
use crate::fleet::Fleet;
use crate::job::{Job, gone, outcome_of};
use crate::known::{Judged, KnownDenials, KnownPart, Turn, TurnUnderWay};
use crate::name::Names;
use crate::saga;
use crate::stats::Stats;
use crate::sync::Instant;
use crate::used::{self, Holding, UsedBudgets};
use crate::wire::{OwnedCharge, Request, Work};

/// A backend that a fleet shares: Redis takes the decisions, by its clock.
///
/// Clones are cheap and share connections.
///
/// ```no_run
/// use tollgate::{Limiter, Policy, Quota, RedisBackend};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = RedisBackend::connect("redis://127.0.0.1/").await?;
/// let limiter = Limiter::builder()
///     .policy(Policy::new("api", Quota::per_second(10)))
///     .backend(backend.clone())
///     .build()?;
///
/// // For metrics: how many decisions one call carries.
/// let stats = backend.stats();
/// println!("{} decisions in {} calls", stats.requests, stats.calls);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisBackend {
    pub(crate) fleet: Fleet,
    known: Arc<KnownDenials>,
    names: Arc<Names>,
    place: Arc<str>,
}

impl RedisBackend {
    /// Connects to `redis://[user:password@]host[:port][/database]`, or with the feature `tls` to `rediss://…`. All of the
    /// backend's tasks run on the Tokio runtime that this is called on. Keep that runtime running for as long as callers ask,
    /// even if they ask from another one: a current-thread runtime outside of `block_on` answers no caller.
    ///
    /// Once that runtime has ended, callers are told so at once. A process that forks makes its backend afterwards: a child has
    /// none of its parent's threads, and shares its sockets.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or if the server does not answer as Redis does.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    /// Configures a backend on one server in detail.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tollgate::RedisBackend;
    ///
    /// # async fn example() -> Result<(), tollgate::ConnectError> {
    /// let backend = RedisBackend::builder("redis://127.0.0.1/").deadline(Duration::from_millis(50)).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn builder(url: &str) -> RedisBackendBuilder {
        RedisBackendBuilder::new(Topology::Single(url.to_owned()))
    }

    /// Configures a backend on the master of this name, whichever server that is at the time, as the Sentinels at these URLs
    /// say. Connections to the master are made like those to the Sentinels: with TLS if their URLs say `rediss://`.
    ///
    /// ```no_run
    /// use tollgate::RedisBackend;
    ///
    /// # async fn example() -> Result<(), tollgate::ConnectError> {
    /// let sentinels = ["redis://sentinel-1:26379", "redis://sentinel-2:26379"];
    /// let backend = RedisBackend::sentinel("mymaster", sentinels)
    ///     // For the master. A user in a URL here is for the Sentinel.
    ///     .username("gate")
    ///     .password("secret")
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn sentinel<U: Into<String>>(
        master_name: impl Into<String>,
        urls: impl IntoIterator<Item = U>,
    ) -> RedisBackendBuilder {
        let urls = urls.into_iter().map(Into::into).collect();
        RedisBackendBuilder::new(Topology::Sentinel(master_name.into(), urls))
    }

    /// Configures a backend on a cluster with nodes at these URLs. The other nodes are found through them.
    ///
    /// The client is our own, and not redis-rs's `ClusterClient`. That one repeats a command after a dropped connection, when the
    /// script may have run, and so would charge twice; without its retries it follows no slot that has moved. The docs of
    /// `tollgate-redis` have [all reasons](crate#why-the-client-for-clusters-is-our-own).
    ///
    /// ```no_run
    /// use tollgate::RedisBackend;
    ///
    /// # async fn example() -> Result<(), tollgate::ConnectError> {
    /// // Two nodes, so that one may be down when the process starts.
    /// let backend = RedisBackend::cluster(["redis://node-1:6379", "redis://node-2:6379"]).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisBackendBuilder {
        let urls = urls.into_iter().map(Into::into).collect();
        RedisBackendBuilder::new(Topology::Cluster(urls))
    }

    /// The traffic so far, of all clones and all nodes together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let figures = self.fleet.holder().figures();
        Stats {
            held: figures.held,
            tells: figures.tells,
            lost_leases: figures.lost_leases,
            reclaimed: figures.reclaimed,
            twins: figures.twins,
            known_denials: self.known.denied(),
            ..self.fleet.counters().read()
        }
    }

    /// The budgets of one policy that are in use, for operators: at most `most`, the emptiest first. Each scope of the policy comes
    /// with the quota by which its budgets are read. Bans have a [list](tollgate_core::Admin::bans) of their own. Nothing is
    /// charged.
    ///
    /// The work is that of the list of bans: `SCAN` on each master, 500 names at a time and at most a million on each node, outside
    /// of scripts. The user needs `+scan`.
    ///
    /// ```no_run
    /// use tollgate::{Quota, RedisBackend, Scope};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = RedisBackend::connect("redis://127.0.0.1/").await?;
    /// let quota = Quota::per_second(10);
    /// let used = backend.used_budgets([(Scope::of("api", 0, &quota), quota)], 20).await?;
    /// for budget in used.budgets() {
    ///     println!("{}: {} of {} left", budget.identity(), budget.remaining(), budget.limit());
    /// }
    /// println!("{} in use, or more: {}", used.seen(), !used.is_complete());
    /// # Ok(()) }
    /// ```
    pub fn used_budgets(
        &self,
        quotas: impl IntoIterator<Item = (Scope, Quota)>,
        most: usize,
    ) -> Answer<UsedBudgets> {
        let quotas = quotas.into_iter().collect();
        used::list(&self.fleet, &self.names, quotas, most)
    }

    /// The processes that hold units of one identity under a limit on how many at once, and how many each of them holds. Nothing
    /// is changed.
    ///
    /// ```no_run
    /// use tollgate::{Concurrent, Key, Quota, RedisBackend, Scope};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = RedisBackend::connect("redis://127.0.0.1/").await?;
    /// let at_once = Quota::from(Concurrent::at_most(5));
    /// let scope = Scope::of("export", 0, &at_once);
    /// for holding in backend.holdings(scope, &Key::from("alice")).await? {
    ///     println!("{} holds {} for {:?} more", holding.process(), holding.units(), holding.lease_left());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn holdings(&self, scope: Scope, key: &Key) -> Answer<Vec<Holding>> {
        used::holdings(&self.fleet, self.names.of(scope, key))
    }

    /// The identity of a caller as it stands in the names of its states: hashed if this backend hashes identities.
    ///
    /// ```no_run
    /// use tollgate::{Key, RedisBackend};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = RedisBackend::connect("redis://127.0.0.1/").await?;
    /// assert_eq!(backend.identity(&Key::from("alice")), "=alice");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn identity(&self, key: &Key) -> String {
        self.names.identity(key)
    }

    pub(crate) fn start(
        fleet: Fleet,
        known: Arc<KnownDenials>,
        names: Names,
        place: String,
    ) -> Self {
        Self {
            fleet,
            known,
            names: Arc::new(names),
            place: place.into(),
        }
    }

    fn request(&self, work: Work, scope: Scope, key: &Key) -> Request {
        Request {
            work,
            names: [self.names.of(scope, key)].into_iter().collect(),
            owed: None,
            known: None,
        }
    }

    #[cfg(feature = "bench")]
    pub(crate) fn known(&self) -> &KnownDenials {
        &self.known
    }

    /// Decides by what is known, or by the server.
    fn judge(&self, call: Call<'_>) -> Answer<Decision> {
        let judged = self.known.judge(call);
        if let Judged::Denied(denied) = judged {
            return self.known.answer(denied);
        }
        let deadline = self.fleet.deadline();
        let request = Request::for_decision(call, &self.names);
        match judged {
            Judged::Waits(turn) => Answer::later(self.clone().waits(turn, request, deadline)),
            Judged::Asks(turn) => self.ask(request, turn, deadline),
            Judged::Denied(denied) => self.known.answer(denied),
        }
    }

    /// Decides once another request of the key has its answer. That may have asked a little early, so that one more asks; this one
    /// waits for two, and then asks itself.
    async fn waits(
        self,
        turn: TurnUnderWay,
        request: Request,
        deadline: Instant,
    ) -> Result<Decision, BackendError> {
        let mut judged = Judged::Waits(turn);
        for _ in 0..2 {
            let Judged::Waits(turn) = judged else {
                break;
            };
            turn.over(self.fleet.runtime()).await;
            let charges = request.work.charges().unwrap_or_default();
            let charges: SmallVec<[Charge<'_>; 2]> =
                charges.iter().map(OwnedCharge::borrow).collect();
            judged = self.known.judge(Call {
                charges: &charges,
                at_least: request.least(),
            });
        }
        match judged {
            Judged::Denied(denied) => self.known.answer(denied).await,
            Judged::Asks(turn) => self.ask(request, turn, deadline).await,
            Judged::Waits(_) => self.ask(request, None, deadline).await,
        }
    }

    fn ask(&self, mut request: Request, turn: Option<Turn>, deadline: Instant) -> Answer<Decision> {
        match &self.fleet {
            Fleet::One(dispatch) => {
                request.known = turn.map(KnownPart::Turn);
                let answer = dispatch.ask(request, deadline);
                Answer::later(async move { outcome_of(answer.await)?.ok_or_else(gone) })
            }
            // Its caller drives it, so that no other may wait for it: the turn ends here.
            Fleet::Cluster(cluster) if saga::is_needed(&request) => {
                let cluster = Arc::clone(cluster);
                match request.least() {
                    Some(at_least) => Answer::later(saga::grant(cluster, request, at_least)),
                    None => Answer::later(saga::decide(cluster, request)),
                }
            }
            Fleet::Cluster(cluster) => {
                request.known = turn.map(KnownPart::Turn);
                let answer = cluster.ask(request, deadline);
                Answer::later(async move { answer.await?.ok_or_else(gone) })
            }
        }
    }

    fn tell(&self, request: Request) {
        let request = self.known.owes(self.fleet.holder().owes(request));
        let job = Job::unattended(request, self.fleet.counters());
        self.fleet.push(job);
    }
}

impl Backend for RedisBackend {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        match call.check() {
            Ok(()) => self.judge(call),
            Err(refused) => Answer::now(Err(refused)),
        }
    }

    fn settle(&self, settlement: Settlement<'_>) {
        let name = |of: &Receipt| self.names.of(of.scope(), of.key());
        match settlement {
            Settlement::Refund(receipt, n) if is_assumed(&receipt) => {
                let n = n.min(receipt.cost());
                self.fleet.holder().no_longer_assumes(name(&receipt), n);
            }
            Settlement::Refund(receipt, n) => {
                let id = receipt.id_to_close(n);
                let id = id.map(|id| self.names.of(id.scope(), id.key()));
                let name = name(&receipt);
                self.tell(Request::credit(receipt, n, name, id));
            }
            // A debit has no receipt, so what it took would be held for ever.
            Settlement::Debit(receipt, n) if receipt.scope().unit() != Unit::Held => {
                let work = Work::Debit(receipt.copy(), n);
                self.tell(self.request(work, receipt.scope(), receipt.key()));
            }
            Settlement::Assume(charge) if charge.scope.unit() == Unit::Held => {
                let name = self.names.of(charge.scope, charge.key);
                self.fleet.holder().assumes(name, charge.cost);
            }
            _ => {}
        }
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl Admin for RedisBackend {
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        let deadline = self.fleet.deadline();
        let mut request = self.request(Work::Reset(scope), scope, key);
        let event = self.known.begins([(scope, key)].into_iter());
        request.known = event.map(KnownPart::Event);
        match &self.fleet {
            Fleet::One(dispatch) => {
                let answer = dispatch.ask(request, deadline);
                Answer::later(async move { outcome_of(answer.await).map(drop) })
            }
            Fleet::Cluster(cluster) => {
                let answer = cluster.ask(request, deadline);
                Answer::later(async move { answer.await.map(drop) })
            }
        }
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        bans::list(&self.fleet, &self.names, scope)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with(Capability::Held)
            .with(Capability::Waits)
            .with(Capability::Bans)
            .with(Capability::Once)
            .with(Capability::UpTo)
            .with(Capability::Assumes)
    }

    fn place(&self) -> Option<String> {
        Some(String::from(&*self.place))
    }

    fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
        let stats = self.stats();
        let away = self.fleet.servers_away();
        for (figure, value) in [
            (Figure::Calls, stats.calls),
            (Figure::Requests, stats.requests),
            (Figure::BytesOut, stats.bytes_out),
            (Figure::BytesIn, stats.bytes_in),
            (Figure::LostGiveBacks, stats.lost_give_backs),
            (Figure::Held, stats.held),
            (Figure::LostLeases, stats.lost_leases),
            (Figure::Reclaimed, stats.reclaimed),
            (Figure::KnownDenials, stats.known_denials),
            (Figure::ServersAway, u64::try_from(away).unwrap_or(u64::MAX)),
        ] {
            tell(figure, value);
        }
    }
}

/// Says whether it is for what is held without a decision.
fn is_assumed(receipt: &Receipt) -> bool {
    receipt.scope().unit() == Unit::Held && receipt.at() == Timestamp::default()
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the client, which holds a password.
        f.debug_struct("RedisBackend")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

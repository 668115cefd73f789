//! The nodes of a cluster: who is asked, and what becomes of those who were sent on.
//!
//! Each node has a queue and connections of its own, so that one that stalls or dies keeps nobody from the others. A call
//! is sent again only when the node's answer proves that it did not run.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, RedisError};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::{BackendError, FailureKind};

use crate::dispatch::{Dispatch, Limits};
use crate::error::failure;
use crate::fleet::{heard, open_from};
use crate::handed::{Handed, Waiting};
use crate::hello;
use crate::job::{Job, Route, Said};
use crate::link::{Link, Origin, connect, send, within};
use crate::server::{self, Address};
use crate::slot;
use crate::slots::{self, Slots};
use crate::stats::Counters;
use crate::wire::Request;

/// How long whoever was sent on twice, or found nobody, waits until the cluster may have made up its mind.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a map is good enough: nodes say so themselves when it is not, and many do so at once.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// All nodes.
pub(crate) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    /// What a connection to any node takes, but for where it is.
    link: Link,
    pub(crate) runtime: Handle,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<Counters>,
    slots: RwLock<Slots>,
    refreshing: AtomicBool,
    myself: Weak<Self>,
}

/// Where a node has sent us, or what it has told us to do. Each proves that the call did not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot has another owner.
    Moved(Address),
    /// The slot is on its way, and this key has gone ahead.
    Ask(Address),
    /// The slot is on its way, and the keys of the call may be in two places.
    Split,
    /// The cluster has nobody for the slot at present.
    Wait,
}

impl Redirect {
    pub(crate) fn of(error: &RedisError, jobs: usize) -> Option<Self> {
        let address = || {
            let (address, _slot) = error.redirect_node()?;
            // An IPv6 address has colons of its own.
            let (host, port) = address.rsplit_once(':')?;
            Some((host.to_owned(), port.parse().ok()?))
        };
        match error.code()? {
            "MOVED" => address().map(Self::Moved),
            // Before Redis 7 this is said as soon as one key has gone ahead. The others' requests, sent ahead one by one,
            // would find nothing there and begin with a full budget.
            "ASK" if jobs > 1 => Some(Self::Split),
            "ASK" => address().map(Self::Ask),
            "TRYAGAIN" if jobs > 1 => Some(Self::Split),
            "TRYAGAIN" | "CLUSTERDOWN" => Some(Self::Wait),
            _ => None,
        }
    }
}

impl Cluster {
    pub(crate) fn new(
        seeds: Vec<ConnectionInfo>,
        link: Link,
        runtime: Handle,
        limits: Limits,
    ) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            seeds,
            link,
            runtime,
            limits,
            counters: Arc::default(),
            slots: RwLock::default(),
            refreshing: AtomicBool::new(false),
            myself: Weak::clone(myself),
        })
    }

    /// Learns who there is, and shows that one of them decides.
    pub(crate) async fn open_now(&self) -> Result<(), BackendError> {
        self.learn().await?;
        let node = self.any_node();
        let node = node.ok_or_else(|| unready("no node of the cluster has a slot"))?;
        drop(node.link.open().await?);
        // The others may be down, and are not waited for any longer than one attempt.
        while self.nodes().iter().any(|node| node.is_opening()) {
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Sends a request on its way, and gives what waits for the answer until the deadline: between two nodes nobody else
    /// keeps it.
    pub(crate) fn ask(
        &self,
        request: Request,
        deadline: Instant,
    ) -> impl Future<Output = Said> + Send + use<> {
        let (job, answer) = Job::awaited(request, deadline);
        let handed = self.hand(job);
        let waiting = Waiting { answer, handed };
        let kind = FailureKind::TimedOut {
            deadline: self.limits.deadline,
        };
        // The timer is the backend's runtime's, whoever polls it.
        let _entered = self.runtime.enter();
        let said = timeout_at(deadline, waiting);
        async move {
            let said = said.await;
            said.map_or_else(|_elapsed| Err(BackendError::new(kind, "")), heard)
        }
    }

    fn nodes(&self) -> Vec<Arc<Dispatch>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.nodes().cloned().collect()
    }

    /// Sends a job to whoever has its slot, whoever waits for it being elsewhere.
    pub(crate) fn push(&self, job: Job) {
        if let Some(handed) = self.hand(job) {
            handed.take_over();
        }
    }

    /// Sends a job to whoever has its slot. Gives back the call if the job leaves alone, for the one who waits to drive.
    #[must_use]
    fn hand(&self, mut job: Job) -> Option<Arc<Handed>> {
        job.route.slot = job.request.names.first().map_or(0, |name| slot::of(name));
        let owner = {
            let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
            slots.owner(job.route.slot).cloned()
        };
        match owner.or_else(|| self.any_node().filter(|_| job.request.names.is_empty())) {
            Some(node) => node.hand(job),
            None => {
                self.refresh();
                let error = unready("no node of the cluster has this key's slot");
                job.fail(error.kind(), error.detail());
                None
            }
        }
    }

    /// Sends jobs on that a node has not run.
    pub(crate) fn send_on(&self, jobs: Vec<Job>, redirect: &Redirect) {
        let slot = jobs.first().map_or(0, |job| job.route.slot);
        let target = match redirect {
            Redirect::Moved(address) => {
                let node = self.node(slot, address);
                let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
                slots.set_owner(slot, node);
                drop(slots);
                self.refresh();
                None
            }
            Redirect::Ask(address) => Some(self.node(slot, address)),
            Redirect::Split => None,
            Redirect::Wait => {
                self.refresh();
                None
            }
        };
        for mut job in jobs {
            if job.is_over() {
                continue;
            }
            job.sent_on += 1;
            job.route = Route {
                slot,
                asking: target.is_some(),
                alone: *redirect == Redirect::Split || job.route.alone,
            };
            let wait = *redirect == Redirect::Wait || job.sent_on > 2;
            self.later(
                job,
                target.clone(),
                if wait { PAUSE } else { Duration::ZERO },
            );
        }
    }

    /// Learns anew who has what, in the background, if nobody does so already.
    pub(crate) fn refresh(&self) {
        if self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let cluster = Weak::clone(&self.myself);
        let _detached = self.runtime.spawn(async move {
            loop {
                let Some(cluster) = cluster.upgrade() else {
                    return;
                };
                let learned = cluster.learn().await.is_ok();
                if learned {
                    cluster.refreshing.store(false, Ordering::Release);
                    return;
                }
                drop(cluster);
                sleep(REFRESH_PAUSE).await;
            }
        });
    }

    fn later(&self, job: Job, target: Option<Arc<Dispatch>>, pause: Duration) {
        let cluster = Weak::clone(&self.myself);
        let _detached = self.runtime.spawn(async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            match (target, cluster.upgrade()) {
                (Some(node), _) => node.push(job),
                (None, Some(cluster)) => cluster.push(job),
                // With the backend goes whoever waits for it.
                (None, None) => drop(job),
            }
        });
    }

    /// Asks those who are connected, then the seeds, who has what.
    async fn learn(&self) -> Result<(), BackendError> {
        for node in self.nodes() {
            if let (Some(mut connection), Origin::Server(server)) =
                (node.connection(), &node.link.origin)
                && within(self.share(), self.learn_from(&mut connection, server))
                    .await
                    .is_ok()
            {
                return Ok(());
            }
        }
        let mut why = unready("no node was named");
        for seed in &self.seeds {
            let learned = async {
                let mut connection = connect(seed.clone()).await?;
                // A replica knows the cluster as well as a master does.
                match hello::greet(&mut connection, &self.link.client_name, self.link.kind).await {
                    Err(error) if error.kind() != FailureKind::ReadOnly => Err(error),
                    _ => self.learn_from(&mut connection, seed).await,
                }
            };
            match within(self.share(), learned).await {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// How long one of them may take to answer, so that a silent one does not keep us from the others.
    fn share(&self) -> Duration {
        self.link.deadline / 4
    }

    async fn learn_from(
        &self,
        connection: &mut MultiplexedConnection,
        server: &ConnectionInfo,
    ) -> Result<(), BackendError> {
        let question = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let answer = send(connection, &question).await;
        let answer = answer.map_err(|error| failure(&error))?;
        let asked = server::address(server).map_or_else(String::new, |(host, _port)| host);
        let ranges = slots::parse(answer, &asked)
            .filter(|ranges| !ranges.is_empty())
            .ok_or_else(|| unready("the node knows nobody who has a slot"))?;
        let gone = {
            let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
            slots.replace(ranges, |address| self.make(address))
        };
        for job in gone.iter().flat_map(|node| node.drain()) {
            self.push(job);
        }
        Ok(())
    }

    fn any_node(&self) -> Option<Arc<Dispatch>> {
        let nodes = self.nodes();
        let alive = nodes.iter().find(|node| node.connection().is_some());
        alive.or(nodes.first()).cloned()
    }

    /// The node that was named. One that does not know its own host leaves it out: it is where the slot was.
    fn node(&self, slot: u16, (host, port): &Address) -> Arc<Dispatch> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let mut host = host.trim_matches(['[', ']']).to_owned();
        if let (true, Some(owner)) = (host.is_empty(), slots.owner(slot))
            && let Origin::Server(server) = &owner.link.origin
            && let Some((here, _port)) = server::address(server)
        {
            host = here;
        }
        slots.node((host, *port), |address| self.make(address))
    }

    fn make(&self, address: Address) -> Arc<Dispatch> {
        let mut link = self.link.clone();
        if let Origin::Server(seed) = &self.link.origin {
            link.origin = Origin::Server(Arc::new(server::at(seed, address)));
        }
        let cluster = Weak::clone(&self.myself);
        let node = Arc::new(Dispatch::new(
            link,
            self.runtime.clone(),
            self.limits,
            cluster,
            Arc::clone(&self.counters),
        ));
        open_from(&node, 0);
        node
    }
}

fn unready(what: &str) -> BackendError {
    BackendError::new(FailureKind::Unready, what)
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the seeds: they hold a password.
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

//! The nodes of a cluster: which node is asked, and the way of the jobs that it redirects.
//!
//! Each node has a queue and connections of its own, so that a node that stalls or dies keeps no request from the others. A
//! call is sent again only when the node's answer proves that it did not run.

mod forward;
mod learn;

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError, Weak};
use std::task::Poll;

use redis::ConnectionInfo;
use tollgate_core::{BackendError, FailureKind};

use crate::dispatch::{Dispatch, Limits, Peers};
use crate::holder::Holder;
use crate::inline_call::{AnswerFuture, InlineCall};
use crate::job::{Job, gone, outcome_of};
use crate::known::KnownDenials;
use crate::link::{Link, Origin};
use crate::redirect::Redirect;
use crate::server::{self, Address};
use crate::slot;
use crate::slots::{Prospect, Slots};
use crate::stats::Counters;
use crate::sync::{AtomicBool, Handle, Instant, RwLock, sleep, sleep_until};
use crate::wire::{Outcome, Request};

use forward::PAUSE;

/// The error of a key whose slot is lost.
const NO_OWNER: &str = "no node of the cluster has this key's slot";

/// All nodes.
pub(crate) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    /// The parts of a connection to any node, except its address.
    link: Link,
    pub(crate) runtime: Handle,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<Counters>,
    pub(crate) holder: Arc<Holder>,
    pub(crate) known: Arc<KnownDenials>,
    slots: RwLock<Slots>,
    refreshing: AtomicBool,
    myself: Weak<Self>,
}

impl Cluster {
    pub(crate) fn new(
        seeds: Vec<ConnectionInfo>,
        link: Link,
        runtime: Handle,
        limits: Limits,
        holder: Arc<Holder>,
        known: Arc<KnownDenials>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            seeds,
            link,
            runtime,
            limits,
            counters: Arc::default(),
            holder,
            known,
            slots: RwLock::default(),
            refreshing: AtomicBool::new(false),
            myself: Weak::clone(myself),
        })
    }

    /// Learns which nodes there are, and checks that one of them decides.
    pub(crate) async fn open_now(&self) -> Result<(), BackendError> {
        self.learn().await?;
        let node = self.any_node();
        let node = node.ok_or_else(|| unready("no node of the cluster has a slot"))?;
        drop(node.link.open().await?);
        // The others may be down; one attempt for each is enough.
        while self.nodes().iter().any(|node| node.is_opening()) {
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Sends a request, and returns the future of its answer, which holds to the deadline: between two nodes no timer but this
    /// one watches it.
    pub(crate) fn ask(
        &self,
        request: Request,
        deadline: Instant,
    ) -> impl Future<Output = Outcome> + Send + use<> {
        let (job, answer) = Job::awaited(request, deadline);
        let inline = self.hand(job);
        let mut waiting = AnswerFuture { answer, inline };
        let kind = FailureKind::TimedOut {
            deadline: self.limits.deadline,
        };
        let runtime = self.runtime.clone();
        // The timer is of the backend's runtime, whichever task polls it.
        let entered = runtime.enter();
        let timer = entered.as_ref().map(|_entered| sleep_until(deadline));
        drop(entered);
        async move {
            let mut timer = pin!(timer);
            poll_fn(move |cx| {
                if let Poll::Ready(said) = Pin::new(&mut waiting).poll(cx) {
                    return Poll::Ready(outcome_of(said));
                }
                let entered = runtime.enter();
                match (&entered, timer.as_mut().as_pin_mut()) {
                    (Some(_lasts), Some(timer)) => {
                        let passed = timer.poll(cx);
                        passed.map(|()| Err(BackendError::new(kind, "")))
                    }
                    _ => Poll::Ready(Err(gone())),
                }
            })
            .await
        }
    }

    fn nodes(&self) -> Vec<Arc<Dispatch>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.nodes().cloned().collect()
    }

    /// All nodes, and true if each slot is one's.
    pub(crate) fn masters(&self) -> (Vec<Arc<Dispatch>>, bool) {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        (slots.nodes().cloned().collect(), slots.are_covered())
    }

    /// The node that has the slot of a name.
    pub(crate) fn owner(&self, name: &[u8]) -> Result<Arc<Dispatch>, BackendError> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let owner = slots.owner(slot::of(name)).cloned();
        owner.ok_or_else(|| unready(NO_OWNER))
    }

    /// Sends a job to the node that has its slot. The caller waits elsewhere.
    pub(crate) fn push(&self, job: Job) {
        if let Some(inline) = self.hand(job) {
            inline.take_over();
        }
    }

    fn any_node(&self) -> Option<Arc<Dispatch>> {
        let nodes = self.nodes();
        let alive = nodes.iter().find(|node| node.connection().is_some());
        alive.or(nodes.first()).cloned()
    }

    fn make(&self, address: Address, hope: Prospect) -> Arc<Dispatch> {
        let mut link = self.link.clone();
        if let Origin::Server(seed) = &self.link.origin {
            link.origin = Origin::Server(Arc::new(server::at(seed, address)));
        }
        let peers: Weak<dyn Peers> = Weak::clone(&self.myself) as _;
        let node = Dispatch::new(
            link,
            self.runtime.clone(),
            self.limits,
            Some(peers),
            Arc::clone(&self.counters),
            Arc::clone(&self.holder),
            Arc::clone(&self.known),
        );
        if hope == Prospect::None {
            let error = unready("the node was replaced because it did not answer");
            node.not_connected(&error);
        }
        node.open_from(0);
        node
    }
}

impl Peers for Cluster {
    /// Sends a job to the node that has its slot.
    fn hand(&self, mut job: Job) -> Option<Arc<InlineCall>> {
        job.route.slot = job.request.names.first().map_or(0, |name| slot::of(name));
        let owner = {
            let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
            slots.owner(job.route.slot).cloned()
        };
        match owner.or_else(|| self.any_node().filter(|_| job.request.names.is_empty())) {
            Some(node) => node.hand(job),
            None if job.is_pending() => {
                self.refresh();
                let error = unready(NO_OWNER);
                job.fail(error.kind(), error.detail());
                None
            }
            None => {
                self.send_on(vec![job], &Redirect::Wait);
                None
            }
        }
    }

    fn send_on(&self, jobs: Vec<Job>, redirect: &Redirect) {
        self.forward(jobs, redirect);
    }

    fn connection_failed(&self) {
        self.refresh();
    }
}

fn unready(what: &str) -> BackendError {
    BackendError::new(FailureKind::Unready, what)
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the seeds, which hold a password.
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

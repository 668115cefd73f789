//! One server, or a cluster of them.

use std::sync::{Arc, Weak};

use tollgate_core::BackendError;

use crate::cluster::Cluster;
use crate::dispatch::Dispatch;
use crate::error::ConnectError;
use crate::holder::Holder;
use crate::job::Job;
use crate::link::Origin;
use crate::sentinel::Listener;
use crate::server::Address;
use crate::stats::Counters;
use crate::sync::{Handle, Instant};

/// The server or servers that decide.
#[derive(Clone, Debug)]
pub(crate) enum Fleet {
    One(Arc<Dispatch>),
    Cluster(Arc<Cluster>),
}

/// A fleet that its tasks do not keep from ending.
#[derive(Debug)]
pub(crate) enum WeakFleet {
    One(Weak<Dispatch>),
    Cluster(Weak<Cluster>),
}

impl WeakFleet {
    pub(crate) fn upgrade(&self) -> Option<Fleet> {
        match self {
            Self::One(dispatch) => dispatch.upgrade().map(Fleet::One),
            Self::Cluster(cluster) => cluster.upgrade().map(Fleet::Cluster),
        }
    }
}

impl Fleet {
    pub(crate) fn downgrade(&self) -> WeakFleet {
        match self {
            Self::One(dispatch) => WeakFleet::One(Arc::downgrade(dispatch)),
            Self::Cluster(cluster) => WeakFleet::Cluster(Arc::downgrade(cluster)),
        }
    }

    pub(crate) fn holder(&self) -> &Arc<Holder> {
        match self {
            Self::One(dispatch) => &dispatch.holder,
            Self::Cluster(cluster) => &cluster.holder,
        }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        match self {
            Self::One(dispatch) => &dispatch.runtime,
            Self::Cluster(cluster) => &cluster.runtime,
        }
    }

    /// The servers that decide, and true if these have the states of all identities.
    pub(crate) fn masters(&self) -> (Vec<Arc<Dispatch>>, bool) {
        match self {
            Self::One(dispatch) => (vec![Arc::clone(dispatch)], true),
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// The server that has the state of this name.
    pub(crate) fn owner(&self, name: &[u8]) -> Result<Arc<Dispatch>, BackendError> {
        match self {
            Self::One(dispatch) => Ok(Arc::clone(dispatch)),
            Self::Cluster(cluster) => cluster.owner(name),
        }
    }

    /// The number of servers without a connection that answers.
    pub(crate) fn servers_away(&self) -> usize {
        let masters = self.masters().0.into_iter();
        masters.filter(|server| !server.is_hopeful()).count()
    }

    /// Runs a task in the background. It does not keep the backend from ending.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::One(dispatch) => dispatch.spawn(task),
            Self::Cluster(cluster) => cluster.runtime.spawn_aside(task),
        }
    }

    /// One server. If Sentinels name it, they are listened to from here on.
    pub(crate) fn one(dispatch: Arc<Dispatch>) -> Self {
        if let Origin::Master(sentinels) = &dispatch.link.origin {
            for listening in sentinels.listening(&Arc::downgrade(&dispatch)) {
                dispatch.spawn(listening);
            }
        }
        Self::One(dispatch)
    }

    /// Opens the first connection now, the others in the background.
    pub(crate) async fn open_now(&self) -> Result<(), ConnectError> {
        match self {
            Self::One(dispatch) => {
                let first = dispatch.link.open().await;
                let first = first.map_err(ConnectError::failed);
                dispatch.connected(0, first?);
                dispatch.open_from(1);
                Ok(())
            }
            Self::Cluster(cluster) => {
                let opened = cluster.open_now().await;
                opened.map_err(ConnectError::failed)
            }
        }
    }

    /// Opens all connections in the background.
    pub(crate) fn open_later(&self) {
        match self {
            Self::One(dispatch) => dispatch.open_from(0),
            Self::Cluster(cluster) => cluster.refresh(),
        }
    }

    /// The deadline of a request that comes now.
    pub(crate) fn deadline(&self) -> Instant {
        let limits = match self {
            Self::One(dispatch) => dispatch.limits,
            Self::Cluster(cluster) => cluster.limits,
        };
        Instant::now() + limits.deadline
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        match self {
            Self::One(dispatch) => &dispatch.counters,
            Self::Cluster(cluster) => &cluster.counters,
        }
    }

    pub(crate) fn push(&self, job: Job) {
        match self {
            Self::One(dispatch) => dispatch.push(job),
            Self::Cluster(cluster) => cluster.push(job),
        }
    }
}

impl Listener for Weak<Dispatch> {
    fn is_there(&self) -> bool {
        self.strong_count() > 0
    }

    fn is_replaced_by(&self, master: &Address) {
        if let Some(dispatch) = self.upgrade() {
            dispatch.is_replaced_by(master);
        }
    }
}

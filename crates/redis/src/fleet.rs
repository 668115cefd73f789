//! One server, or a cluster of them.

use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_core::{BackendError, FailureKind};

use crate::cluster::Cluster;
use crate::dispatch::Dispatch;
use crate::error::ConnectError;
use crate::job::{Heard, Job, Said};
use crate::reconnect;
use crate::stats::Counters;
use crate::sync::Instant;

/// Whoever decides.
#[derive(Clone, Debug)]
pub(crate) enum Fleet {
    One(Arc<Dispatch>),
    Cluster(Arc<Cluster>),
}

impl Fleet {
    /// Opens the first connection now, the others in the background.
    pub(crate) async fn open_now(&self) -> Result<(), ConnectError> {
        match self {
            Self::One(dispatch) => {
                let first = dispatch.link.open().await;
                let first = first.map_err(ConnectError::failed);
                dispatch.connected(0, first?);
                open_from(dispatch, 1);
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
            Self::One(dispatch) => open_from(dispatch, 0),
            Self::Cluster(cluster) => cluster.refresh(),
        }
    }

    /// When a request that comes now must have its answer.
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

pub(crate) fn heard(heard: Result<Heard, oneshot::error::RecvError>) -> Said {
    let said = heard.ok().and_then(Heard::read);
    said.unwrap_or_else(|| Err(gone()))
}

pub(crate) fn gone() -> BackendError {
    BackendError::new(
        FailureKind::Unreachable,
        "the runtime of the backend has ended",
    )
}

/// Opens connections in the background, but for those before `first`.
pub(crate) fn open_from(dispatch: &Arc<Dispatch>, first: usize) {
    for wire in first..dispatch.wires() {
        reconnect::spawn(dispatch, wire);
    }
}

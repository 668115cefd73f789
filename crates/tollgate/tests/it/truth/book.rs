//! The requests that handlers saw, and the questions to the backend meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Method, Uri};
use tollgate::{
    Admin, Answer, Backend, BackendError, Call, Decision, ImmediateBackend, Key, ManualClock,
    MemoryBackend, Mode, Settlement,
};

use crate::truth::readings::{Reading, Who};

/// The events in a service since it was last read.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Page>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) runs: Vec<Run>,
    pub(crate) taken: Vec<Taken>,
}

/// A handler that ran.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) place: Place,
    pub(crate) head: Arc<Head>,
    /// The messages that it was handed, if it is a method of gRPC's.
    pub(crate) messages: u64,
}

/// The place of a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    /// True if a layer with the service's policies stands around it.
    pub(crate) behind: bool,
    pub(crate) is_grpc: bool,
    /// True if it is a method of gRPC's in a nest, whose path is longer than its name.
    pub(crate) is_nested: bool,
    /// The policy of its own, which an annotation gave it.
    pub(crate) own: Option<&'static str>,
}

/// The request as the handler could see it.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    /// As the caller sent it, within a nest as well.
    pub(crate) uri: Uri,
    pub(crate) matched: Option<String>,
    pub(crate) headers: HeaderMap,
    /// The callers that the extractors see.
    pub(crate) readings: BTreeMap<Who, Reading>,
}

/// A charge that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) policy: &'static str,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { method, uri, .. } = &*self.head;
        write!(f, "handler `{}` ran for {method} {uri}", self.place.name)?;
        for (who, reading) in &self.head.readings {
            write!(f, ", {who:?}:")?;
            for caller in reading {
                match caller {
                    None => write!(f, " none")?,
                    Some(caller) => write!(f, " \"{}\"", caller.escape_ascii())?,
                }
            }
        }
        Ok(())
    }
}

impl Book {
    pub(crate) fn began(&self, place: Place, head: Arc<Head>) -> usize {
        self.with(|page| {
            let messages = 0;
            page.runs.push(Run {
                place,
                head,
                messages,
            });
            page.runs.len() - 1
        })
    }

    pub(crate) fn received(&self, run: usize) {
        self.with(|page| {
            if let Some(run) = page.runs.get_mut(run) {
                run.messages += 1;
            }
        });
    }

    /// All that has happened, which is forgotten then.
    pub(crate) fn read(&self) -> Page {
        self.with(mem::take)
    }

    fn with<T>(&self, f: impl FnOnce(&mut Page) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The backend in memory, whose clock stands still, and which writes down what it takes.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    inner: Arc<MemoryBackend>,
    book: Arc<Book>,
}

impl Recording {
    pub(crate) fn new(book: &Arc<Book>) -> Self {
        let memory = MemoryBackend::builder().clock(ManualClock::new()).build();
        Self {
            inner: Arc::new(memory),
            book: Arc::clone(book),
        }
    }
}

impl Backend for Recording {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        Answer::now(self.decide_now(call))
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.inner.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.inner.admin()
    }
}

impl ImmediateBackend for Recording {
    fn decide_now(&self, call: Call<'_>) -> Result<Decision, BackendError> {
        let decision = self.inner.decide_now(call)?;
        if decision.is_admitted() {
            let enforced = call
                .charges
                .iter()
                .filter(|charge| charge.mode == Mode::Enforce);
            let taken = enforced.map(|charge| Taken {
                policy: charge.scope.policy(),
                key: charge.key.clone(),
                cost: charge.cost,
            });
            self.book.with(|page| page.taken.extend(taken));
        }
        Ok(decision)
    }
}

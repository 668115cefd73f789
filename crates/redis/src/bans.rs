//! The list of bans, for operators: `SCAN` on each master, and never a script that holds a server.
//!
//! Each page is a call of its own, so that decisions go on in between. A page looks at a bounded number of names, and a node has
//! a bounded number of pages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, RedisError, Value, cmd, from_redis_value};
use tokio::sync::oneshot;
use tollgate_core::{
    Answer, BackendError, BanList, BannedCaller, FailureKind, Scope, Timestamp, Unit,
};

use crate::connection::{Connection, send};
use crate::dispatch::Dispatch;
use crate::dispatch::batch::ask;
use crate::error::{failure, refusal};
use crate::fleet::Fleet;
use crate::job::gone;
use crate::link::Link;
use crate::name::{Name, Names};
use crate::sync::{Instant, timeout_at};
use crate::wire::{Reply, read_state};

/// The names that a page looks at: so many keep a server busy for a tenth of a millisecond.
const PAGE: usize = 500;

/// The most pages of a node: a million names.
const MOST_PAGES: usize = 2_000;

/// The most states that are read in one go.
const STATES: usize = 64;

/// Lists the bans of a scope. The work ends soon after the answer is dropped.
pub(crate) fn list(fleet: &Fleet, names: &Arc<Names>, scope: Scope) -> Answer<BanList> {
    let (tell, told) = oneshot::channel();
    let asked = fleet.clone();
    let mut listing = Listing {
        names: Arc::clone(names),
        scope,
        callers: HashMap::new(),
        is_complete: true,
    };
    // A task of the backend's runtime, whose timers it needs, whatever polls the answer.
    fleet.spawn(async move {
        let listed = listing.of(&asked, &|| !tell.is_closed()).await;
        let list = || BanList::new(listing.callers.into_values(), listing.is_complete);
        drop(tell.send(listed.map(|()| list())));
    });
    Answer::later(async move { told.await.unwrap_or_else(|_ended| Err(gone())) })
}

/// A list in the making.
struct Listing {
    names: Arc<Names>,
    scope: Scope,
    /// By the names of their states: `SCAN` may show a name twice.
    callers: HashMap<Name, BannedCaller>,
    is_complete: bool,
}

impl Listing {
    async fn of(
        &mut self,
        fleet: &Fleet,
        is_wanted: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<(), BackendError> {
        let (masters, are_all) = fleet.masters();
        self.is_complete = are_all;
        for master in masters {
            self.walk(&master, is_wanted).await?;
        }
        Ok(())
    }

    /// Goes through the names of one master.
    async fn walk(
        &mut self,
        master: &Dispatch,
        is_wanted: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<(), BackendError> {
        // One connection for all pages: a cursor means nothing to another server.
        let connection = master.connection();
        let mut connection = connection.ok_or_else(|| master.no_answer())?;
        let pattern = self.names.pattern(self.scope);
        let mut cursor = b"0".to_vec();
        for _ in 0..MOST_PAGES {
            let scan = cmd("SCAN")
                .arg(&cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(PAGE)
                .to_owned();
            let page = in_time(&master.link, "SCAN", send(&mut connection, &scan)).await?;
            let (next, names) = read_page(page)?;
            for names in names.chunks(STATES) {
                self.look_at(&master.link, &mut connection, names).await?;
            }
            if next == b"0" {
                return Ok(());
            }
            if self.callers.len() > BanList::MOST || !is_wanted() {
                break;
            }
            cursor = next;
        }
        self.is_complete = false;
        Ok(())
    }

    /// Adds the bans in force among these states.
    async fn look_at(
        &mut self,
        link: &Link,
        connection: &mut Connection,
        names: &[Name],
    ) -> Result<(), BackendError> {
        let mut states = Pipeline::with_capacity(names.len());
        for name in names {
            states.cmd("GET").arg(name);
        }
        let found = connection.send_packed_commands(&states, 0, names.len());
        let found = in_time(link, "GET", found).await?;
        let now = now(link, connection).await?;
        for (name, found) in names.iter().zip(found) {
            let state = match found.extract_error() {
                Ok(Value::BulkString(state)) => read_state(&state, Unit::Ban),
                // It has ended meanwhile.
                Ok(_) => continue,
                // On its way to another node, or no state of ours.
                Err(error) if is_elsewhere(&error) => None,
                Err(error) => return Err(refusal("GET", &error)),
            };
            match state {
                Some(state) => {
                    let left = state.banned_for(now);
                    let caller = left.and_then(|left| self.caller(name, left));
                    self.callers
                        .extend(caller.map(|caller| (name.clone(), caller)));
                }
                None => self.is_complete = false,
            }
        }
        Ok(())
    }

    /// The caller that this name stands for, if this backend asks for such a name.
    fn caller(&self, name: &[u8], left: Duration) -> Option<BannedCaller> {
        let read = self.names.read(self.scope, name)?;
        Some(match read.key() {
            Some(key) => BannedCaller::new(key.clone(), left),
            None => BannedCaller::hashed(read.identity(), left),
        })
    }
}

/// The time of the server, as decisions have it.
async fn now(link: &Link, connection: &mut Connection) -> Result<Timestamp, BackendError> {
    let script = &link.script;
    let nothing = cmd("EVALSHA").arg(script.sha()).arg(0).to_owned();
    let asked = ask(connection, script, &nothing, false);
    let reply = Reply::parse(in_time(link, "EVALSHA", asked).await?);
    let now = reply.and_then(|reply| reply.now());
    now.ok_or_else(|| unreadable("EVALSHA"))
}

/// The next cursor, and the names.
fn read_page(page: Value) -> Result<(Vec<u8>, Vec<Name>), BackendError> {
    from_redis_value(page).map_err(|_error| unreadable("SCAN"))
}

fn unreadable(command: &str) -> BackendError {
    let detail = format!("the answer to {command} cannot be read");
    BackendError::new(FailureKind::WrongServer, detail)
}

fn is_elsewhere(error: &RedisError) -> bool {
    matches!(error.code(), Some("MOVED" | "ASK" | "WRONGTYPE"))
}

/// A question beside the decisions has as long as a new connection has.
async fn in_time<T>(
    link: &Link,
    command: &str,
    asked: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, BackendError> {
    let deadline = link.deadline;
    match timeout_at(Instant::now() + deadline, asked).await {
        Ok(Err(error)) if error.code().is_some() => Err(refusal(command, &error)),
        Ok(answer) => answer.map_err(|error| failure(&error)),
        Err(_elapsed) => Err(BackendError::new(FailureKind::TimedOut { deadline }, "")),
    }
}

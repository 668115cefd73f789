//! A walk through the names of states, for operators: `SCAN` on each master, and never a script that holds a server.
//!
//! Each page is a call of its own, so that decisions go on in between. A page looks at a bounded number of names, and a node has
//! a bounded number of pages.

use redis::{Pipeline, RedisError, Value, cmd, from_redis_value};
use tokio::sync::oneshot;
use tollgate_core::{Answer, BackendError, FailureKind, Timestamp};

use crate::connection::{Connection, send};
use crate::dispatch::Dispatch;
use crate::dispatch::batch::ask;
use crate::error::{failure, refusal};
use crate::fleet::Fleet;
use crate::job::gone;
use crate::link::Link;
use crate::name::Name;
use crate::sync::{Instant, timeout_at};
use crate::wire::Reply;

/// The names that a page looks at: so many keep a server busy for a tenth of a millisecond.
const PAGE: usize = 500;

/// The most pages of a node: a million names.
const MOST_PAGES: usize = 2_000;

/// The most states that are read in one go.
const STATES: usize = 64;

/// The task of a walk: the names that it looks at, and the result that it builds.
pub(crate) trait Visitor: Send + 'static {
    /// The list at the end of the walk.
    type List: Send + 'static;

    /// The pattern of `SCAN` for the names.
    fn pattern(&self) -> Name;

    /// True if the state of this name is to be read.
    fn wants(&self, name: &[u8]) -> bool;

    /// Takes a state in. False if it cannot be read, so that the list is not complete.
    fn see(&mut self, name: &Name, state: &[u8], now: Timestamp) -> bool;

    /// True if the list can take no more, so that the walk may end.
    fn is_full(&self) -> bool;

    /// The list, and whether the walk saw every state.
    fn into_list(self, is_complete: bool) -> Self::List;
}

/// Walks through the states of all masters. The work ends soon after the answer is dropped.
pub(crate) fn list<V: Visitor>(fleet: &Fleet, visitor: V) -> Answer<V::List> {
    let (tell, told) = oneshot::channel();
    let asked = fleet.clone();
    let mut walk = Walk {
        visitor,
        is_complete: true,
    };
    // A task of the backend's runtime, whose timers it needs, whatever polls the answer.
    fleet.spawn(async move {
        let walked = walk.through(&asked, &|| !tell.is_closed()).await;
        let list = || walk.visitor.into_list(walk.is_complete);
        drop(tell.send(walked.map(|()| list())));
    });
    Answer::later(async move { told.await.unwrap_or_else(|_ended| Err(gone())) })
}

/// A walk that is under way.
struct Walk<V> {
    visitor: V,
    is_complete: bool,
}

impl<V: Visitor> Walk<V> {
    async fn through(
        &mut self,
        fleet: &Fleet,
        is_wanted: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<(), BackendError> {
        let (masters, are_all) = fleet.masters();
        self.is_complete = are_all;
        for master in masters {
            self.through_one(&master, is_wanted).await?;
        }
        Ok(())
    }

    /// Goes through the names of one master.
    async fn through_one(
        &mut self,
        master: &Dispatch,
        is_wanted: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<(), BackendError> {
        // One connection for all pages: a cursor means nothing to another server.
        let connection = master.connection();
        let mut connection = connection.ok_or_else(|| master.no_answer())?;
        let pattern = self.visitor.pattern();
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
            let (next, mut names) = read_page(page)?;
            names.retain(|name| self.visitor.wants(name));
            for names in names.chunks(STATES) {
                self.look_at(&master.link, &mut connection, names).await?;
            }
            if next == b"0" {
                return Ok(());
            }
            if self.visitor.is_full() || !is_wanted() {
                break;
            }
            cursor = next;
        }
        self.is_complete = false;
        Ok(())
    }

    /// Shows these states to the visitor.
    async fn look_at(
        &mut self,
        link: &Link,
        connection: &mut Connection,
        names: &[Name],
    ) -> Result<(), BackendError> {
        let (found, now) = read_states(link, connection, names).await?;
        for (name, found) in names.iter().zip(found) {
            self.is_complete &= match found? {
                Found::State(state) => self.visitor.see(name, &state, now),
                Found::Nothing => true,
                Found::Elsewhere => false,
            };
        }
        Ok(())
    }
}

/// The content of a name.
pub(crate) enum Found {
    State(Vec<u8>),
    /// It has ended meanwhile.
    Nothing,
    /// It is on its way to another node, or it is not a text.
    Elsewhere,
}

/// Reads states, and then the time of the server.
pub(crate) async fn read_states(
    link: &Link,
    connection: &mut Connection,
    names: &[Name],
) -> Result<(Vec<Result<Found, BackendError>>, Timestamp), BackendError> {
    let mut states = Pipeline::with_capacity(names.len());
    for name in names {
        states.cmd("GET").arg(name);
    }
    let found = connection.send_packed_commands(&states, 0, names.len());
    let found = in_time(link, "GET", found).await?;
    let now = now(link, connection).await?;
    let found = found.into_iter().map(|found| match found.extract_error() {
        Ok(Value::BulkString(state)) => Ok(Found::State(state)),
        Ok(_) => Ok(Found::Nothing),
        Err(error) if is_elsewhere(&error) => Ok(Found::Elsewhere),
        Err(error) => Err(refusal("GET", &error)),
    });
    Ok((found.collect(), now))
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

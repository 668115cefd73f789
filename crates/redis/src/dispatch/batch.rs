//! The calls of a batch, from their requests to the answers.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, RedisError, Value};
use smallvec::SmallVec;
use tollgate_core::{BackendError, Decision, FailureKind};
use tracing::Instrument;

use super::Dispatch;
use super::traffic::Place;
use crate::connection::{Connection, send, send_all};
use crate::departure::Departure;
use crate::error::{again, failure, wants_reconnect};
use crate::job::{CreditSink, Job};
use crate::redirect::Redirect;
use crate::script::{Script, Shape};
use crate::sync::{Instant, timeout_at};
use crate::wire::{LeftStates, Plan, Reply, ScriptCall, held_by_caller, replay};

/// The time after its deadline in which a call may still be answered, so that its charges are given back. Then the connection
/// is closed: it has stalled for far longer than a lost packet explains.
const GRACE: Duration = Duration::from_secs(2);

/// The number of times that one call loads the script. Loading and calling go out together, but another client may flush the
/// script in between, if the server has not received all of it yet. If that happens each time, the callers get an error.
const MOST_LOADS: u32 = 8;

/// Sends the batch and answers each request in it within its deadline. Says whether the lane is free for another.
pub(super) async fn run(
    dispatch: &Arc<Dispatch>,
    place: Place,
    connection: Connection,
    mut jobs: Vec<Job>,
) -> bool {
    // The task that drives this may have come late, or not at all.
    dispatch.drop_unwanted(&mut jobs);
    let mut calls = by_shape(jobs);
    match calls.len() {
        1 => call(dispatch, place, connection, calls.swap_remove(0)).await,
        _ => {
            // Sent in this order, in one go, and run in it.
            let calls = calls.into_iter();
            let calls = calls.map(|jobs| call(dispatch, place, connection.clone(), jobs));
            join_all(calls).await.into_iter().all(|is_free| is_free)
        }
    }
}

/// The jobs of each call. Ahead are those that any script may carry: a credit counts before the decisions beside it, and its time is
/// an earlier one, so that no charge is confused with those that the credit moves.
fn by_shape(jobs: Vec<Job>) -> SmallVec<[Vec<Job>; 1]> {
    let mut calls: SmallVec<[(_, Vec<Job>); 1]> = SmallVec::new();
    for job in jobs {
        let shape = job.request.shape();
        match calls.iter_mut().find(|(of, _)| *of == shape) {
            Some((_, jobs)) => jobs.push(job),
            None => calls.push((shape, vec![job])),
        }
    }
    calls.sort_by_key(|(shape, _)| shape.is_some());
    calls.into_iter().map(|(_, jobs)| jobs).collect()
}

async fn call(
    dispatch: &Arc<Dispatch>,
    place: Place,
    mut connection: Connection,
    mut jobs: Vec<Job>,
) -> bool {
    let departure = dispatch.holder.departs(&mut jobs);
    if jobs.is_empty() {
        return true;
    }
    let asking = jobs.first().is_some_and(|job| job.route.asking);
    let mut prepared = Prepared::of(dispatch, &jobs, departure.as_ref());
    let (written, sent, result) = loop {
        let written = connection.written();
        let sent = dispatch.known.departs();
        let result = {
            let span = tracing::debug_span!("redis_call", requests = jobs.len());
            let asked = ask(&mut connection, &prepared.script, &prepared.command, asking);
            let mut asked = pin!(asked.instrument(span));
            wait(dispatch, place, sent.sent_at, &mut jobs, asked.as_mut()).await
        };
        let is_unusual = matches!(&result, Some(Ok(Value::BulkString(text))) if text.is_empty());
        if !is_unusual || !prepared.is_composed {
            break (written, sent, result);
        }
        // Nothing was written, and the general script knows what to make of it.
        prepared = Prepared::general(dispatch, &jobs, None);
    };
    let Prepared { plan, keys, .. } = prepared;
    let sent_at = sent.sent_at;
    let received_at = Instant::now();
    let round_trip = received_at.saturating_duration_since(sent_at);
    if matches!(result, Some(Ok(_))) && !dispatch.answered(place, round_trip) {
        fail(&mut jobs, given_up);
        return true;
    }
    match result {
        Some(Ok(value)) => {
            dispatch.counters.received(length(&value));
            let learn = |position: usize, decision: &Decision, left: &LeftStates<'_, '_>| {
                let (slot, request) = (jobs[position].route.slot, &jobs[position].request);
                dispatch
                    .known
                    .learn(sent, received_at, slot, request, decision, left);
            };
            let said = answers(value, &plan, keys, &jobs, departure, learn);
            let unreadable = said.as_ref().err().map(again);
            deliver(jobs, said, dispatch);
            match unreadable {
                // The answer may belong to an earlier call, and the next one to this. A connection that stayed open would give
                // every caller another one's answer.
                Some(error) => dispatch.broken(place, &error),
                None => return true,
            }
        }
        Some(Err(error)) => {
            if let Some(peers) = dispatch.peers()
                && let Some(redirect) = Redirect::of(&error, jobs.len())
            {
                if let Some(departure) = departure {
                    departure.has_not_run(&jobs);
                }
                peers.send_on(jobs, &redirect);
                return true;
            }
            let failed = broken_off(&error);
            let is_refused = error.code().is_some();
            let has_left = connection.written() != written;
            if let (Some(departure), true) = (departure, is_refused || !has_left) {
                // The script did not run, or failed before its first write.
                departure.has_not_run(&jobs);
            }
            if !is_refused && !has_left {
                dispatch.resend(place, jobs);
                return false;
            }
            fail(&mut jobs, || again(&failed));
            if !wants_reconnect(&error) {
                return true;
            }
            dispatch.broken(place, &failed);
        }
        None => {
            let silent = BackendError::new(dispatch.timed_out(), "");
            // The callers have been told. The outcome of the other jobs is unknown.
            fail(&mut jobs, || again(&silent));
            dispatch.broken(place, &silent);
        }
    }
    false
}

/// The error of calls that were on their way over a connection that was closed meanwhile.
fn given_up() -> BackendError {
    BackendError::new(
        FailureKind::Unreachable,
        "the connection was given up before the answer came",
    )
}

/// The error of a failed call. The server has shown that it is Redis, so an answer that cannot be parsed is half an answer, and
/// the charges may have been taken.
fn broken_off(error: &RedisError) -> BackendError {
    match error.kind() {
        ErrorKind::Parse => BackendError::new(
            FailureKind::Unreachable,
            "the connection broke in the middle of an answer",
        ),
        _ => failure(error),
    }
}

/// A call that is ready to be sent.
struct Prepared {
    script: Arc<Script>,
    is_composed: bool,
    command: Cmd,
    /// The format of the answer.
    plan: Plan,
    /// The number of keys.
    keys: usize,
}

impl Prepared {
    /// A call of the script of its shape, if it has one.
    fn of(dispatch: &Dispatch, jobs: &[Job], departure: Option<&Departure>) -> Self {
        let (plan, call) = Plan::of(jobs.iter().map(|job| &*job.request));
        let shape = Shape::of(&call.runs, call.keys.len()).filter(|_| departure.is_none());
        match shape.and_then(|shape| dispatch.link.composed.script(shape)) {
            Some(script) => Self::with(dispatch, script, true, plan, &call, jobs.len()),
            None => Self::general(dispatch, jobs, departure),
        }
    }

    /// A call of the script that decides any call.
    fn general(dispatch: &Dispatch, jobs: &[Job], departure: Option<&Departure>) -> Self {
        let (plan, mut call) = Plan::of(jobs.iter().map(|job| &*job.request));
        if let Some(departure) = departure {
            let places = departure.places(&call.keys);
            call.is_of(departure.caller(), &places);
        }
        let script = Arc::clone(&dispatch.link.script);
        Self::with(dispatch, script, false, plan, &call, jobs.len())
    }

    fn with(
        dispatch: &Dispatch,
        script: Arc<Script>,
        is_composed: bool,
        plan: Plan,
        call: &ScriptCall<'_>,
        requests: usize,
    ) -> Self {
        dispatch.counters.sent(call, script.sha(), requests);
        Self {
            command: command(&script, call),
            keys: call.keys.len(),
            script,
            is_composed,
            plan,
        }
    }
}

fn command(script: &Script, call: &ScriptCall<'_>) -> Cmd {
    let words = || {
        call.keys
            .iter()
            .copied()
            .chain(call.runs.iter().map(|run| &run[..]))
    };
    let bytes = 64 + words().map(<[u8]>::len).sum::<usize>();
    let mut command = Cmd::with_capacity(3 + call.keys.len() + call.runs.len(), bytes);
    command
        .arg("EVALSHA")
        .arg(script.sha())
        .arg(call.keys.len());
    for word in words() {
        command.arg(word);
    }
    command
}

/// Calls the script. If the server does not have it, which proves that it did not run, loads it and calls it in one go, so that
/// a flushed script costs one round trip. No other call is ever sent twice.
pub(crate) async fn ask(
    connection: &mut Connection,
    script: &Script,
    command: &Cmd,
    asking: bool,
) -> Result<Value, RedisError> {
    let mut result = if asking {
        send_all(connection, &[&redis::cmd("ASKING"), command]).await
    } else {
        send(connection, command).await
    };
    for _ in 0..MOST_LOADS {
        let is_missing = matches!(&result, Err(error) if error.code() == Some("NOSCRIPT"));
        if !is_missing {
            break;
        }
        let load = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(script.source())
            .to_owned();
        // ASKING holds for the next command.
        let asks = asking.then(|| redis::cmd("ASKING"));
        let commands = [Some(&load), asks.as_ref(), Some(command)];
        let commands: SmallVec<[&Cmd; 3]> = commands.into_iter().flatten().collect();
        result = send_all(connection, &commands).await;
    }
    result
}

/// Waits for the answer, and meanwhile tells the callers whose deadline passes. One timer serves all of them.
async fn wait(
    dispatch: &Arc<Dispatch>,
    place: Place,
    sent_at: Instant,
    jobs: &mut [Job],
    mut asked: Pin<&mut impl Future<Output = Result<Value, RedisError>>>,
) -> Option<Result<Value, RedisError>> {
    let mut last = sent_at;
    // The time at which the call counts as stalled. A call of credits alone has no caller's deadline, but callers that wait for
    // its lane depend on it.
    let has_waiters = jobs.iter().any(Job::is_pending);
    let mut stalls_at = (!has_waiters).then(|| sent_at + dispatch.limits.deadline);
    loop {
        let pending = jobs.iter().filter(|job| job.is_pending());
        let next = pending.map(|job| job.deadline).chain(stalls_at).min();
        if let Ok(result) = timeout_at(next.unwrap_or(last + GRACE), asked.as_mut()).await {
            return Some(result);
        }
        // No caller waits any more, and the time of grace is over.
        next?;
        last = Instant::now();
        let patient_until = sent_at + dispatch.patience();
        stalls_at = (last < patient_until).then_some(patient_until);
        if stalls_at.is_none() {
            // Before the callers hear of it, and ask again.
            dispatch.stalled(place);
        }
        for job in jobs
            .iter_mut()
            .filter(|job| job.is_pending() && job.deadline <= last)
        {
            job.fail(dispatch.timed_out(), "");
        }
    }
}

/// The number of bytes of the reply, which holds only texts and numbers.
fn length(reply: &Value) -> usize {
    match reply {
        Value::BulkString(text) => text.len(),
        Value::Int(number) => number
            .checked_ilog10()
            .map_or(1, |digits| digits as usize + 1),
        _ => 0,
    }
}

type Answers = Result<Vec<(usize, crate::wire::Outcome)>, BackendError>;

fn answers(
    value: Value,
    plan: &Plan,
    keys: usize,
    jobs: &[Job],
    departure: Option<Departure>,
    learn: impl FnMut(usize, &Decision, &LeftStates<'_, '_>),
) -> Answers {
    let reply = Reply::parse(value).ok_or_else(|| {
        BackendError::new(
            FailureKind::WrongServer,
            "the server is not a Redis that runs our script",
        )
    })?;
    let outcomes = replay(
        &reply,
        plan,
        keys,
        |position| &jobs[position].request,
        learn,
    )?;
    if let Some(departure) = departure {
        let held = held_by_caller(&reply, keys);
        departure.answered(jobs, &outcomes, &held, |request, charge| {
            plan.key(request, charge)
        });
    }
    Ok(outcomes)
}

/// Answers each request.
fn deliver(mut jobs: Vec<Job>, said: Answers, dispatch: &Arc<Dispatch>) {
    match said {
        Ok(outcomes) => {
            for (position, outcome) in outcomes {
                let undo: Arc<dyn CreditSink> = Arc::clone(dispatch) as _;
                jobs[position].answer(outcome, undo);
            }
        }
        Err(error) => fail(&mut jobs, || again(&error)),
    }
}

fn fail(jobs: &mut [Job], error: impl Fn() -> BackendError) {
    for job in jobs {
        job.refuse(error());
    }
}

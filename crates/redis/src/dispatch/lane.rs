//! The connections: which can be hoped for, and what becomes of those who wait when one stalls or breaks.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tollgate_core::{BackendError, FailureKind};

use super::pace::Pace;
use super::{Dispatch, MAX_REQUESTS, NO_ANSWER};
use crate::call;
use crate::error::again;
use crate::handed::Handed;
use crate::job::Job;
use crate::link::{Connection, Opened};
use crate::queue::Queue;
use crate::reconnect;
use crate::server::Address;
use crate::sync::{Instant, MutexGuard};
use crate::wire::Request;

/// Those are told this who ask between two masters.
const REPLACED: &str = "the Sentinels name another master, which is being connected to";

#[derive(Debug)]
pub(super) struct State {
    pub(super) queue: Queue,
    wires: Vec<Wire>,
    /// Those of the first connection, the second …, and again, as often as a connection ever carried several calls.
    pub(super) lanes: Vec<Lane>,
    /// How many of them may take something along.
    open: usize,
    pub(super) pace: Pace,
    /// Why the latest connection was lost or not made, for those who find none.
    pub(super) why: Option<BackendError>,
    /// Whether a node that was just heard of is being connected to for the first time, so that it is worth waiting for.
    pub(super) opening: bool,
    /// Whether the node is none of the cluster's any more, so that nobody would ever come to what waits here.
    pub(super) has_left: bool,
    /// Whether the runtime has ended, on which everything runs.
    pub(super) has_ended: bool,
    /// Whether a timer is set for those who wait.
    pub(super) is_watched: bool,
}

/// A connection, or the place of one.
#[derive(Debug, Default)]
struct Wire {
    connection: Option<Connection>,
    /// Where it leads, if that is known.
    server: Option<Address>,
    /// How often there was another one: what a call on an earlier one says is of no account to this.
    number: u64,
    /// How many of its calls should have been answered, and are not.
    stalled: usize,
}

impl Wire {
    /// Whether what waits may hope for it.
    fn is_alive(&self) -> bool {
        self.connection.is_some() && self.stalled == 0
    }

    /// Is not used again, nor listened to.
    fn give_up(&mut self) {
        *self = Self {
            number: self.number + 1,
            ..Self::default()
        };
    }
}

/// Carries one call at a time over its connection. One is enough where the server is near: more would only make calls smaller.
#[derive(Debug, Default)]
pub(super) struct Lane {
    stage: Stage,
    /// Its call should have been answered, and is not.
    stalled: bool,
    /// The connection that its call went out over.
    number: u64,
    /// Its call is driven by the one who waits for it.
    pub(super) handed: Option<Arc<Handed>>,
}

/// What a lane does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// It leaves when those who are ready to ask have asked.
    Gathering,
    Calling,
}

/// Which call: that of a lane, over one of the connections that it has had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    lane: usize,
    number: u64,
}

impl Lane {
    pub(super) fn is_gathering(&self) -> bool {
        self.stage == Stage::Gathering
    }
}

impl State {
    pub(super) fn new(wires: usize, opening: bool) -> Self {
        Self {
            queue: Queue::default(),
            wires: (0..wires).map(|_| Wire::default()).collect(),
            lanes: (0..wires).map(|_| Lane::default()).collect(),
            open: wires,
            pace: Pace::default(),
            why: None,
            opening,
            has_left: false,
            has_ended: false,
            is_watched: false,
        }
    }

    /// Whether it is worth waiting for an answer.
    pub(super) fn is_hopeful(&self) -> bool {
        self.opening || self.wires.iter().any(Wire::is_alive)
    }

    /// Whether no more may wait. Those who wait for an answer and those who do not keep no place from each other.
    pub(super) fn is_full(&self, is_awaited: bool, most: usize) -> bool {
        let waiting = if is_awaited {
            self.queue.awaited()
        } else {
            self.queue.unattended()
        };
        waiting >= most
    }

    /// Whether so many are before it that it would be answered after its deadline, were they all gone in full calls and those
    /// answered as fast as any of late.
    pub(super) fn comes_too_late(&self, job: &Job, deadline: Duration) -> bool {
        let before = self.queue.awaited() / (MAX_REQUESTS * self.open);
        if before == 0 {
            return false;
        }
        let now = Instant::now();
        let takes = self.pace.answer_takes(now, deadline);
        let calls = u32::try_from(before + 1).unwrap_or(u32::MAX);
        now + takes.saturating_mul(calls) > job.deadline
    }

    /// The lane that takes along the only one who asks, if nobody else does.
    pub(super) fn leads(&mut self) -> Option<usize> {
        let is_alone =
            self.queue.len() == 1 && self.lanes.iter().all(|lane| lane.stage == Stage::Idle);
        if is_alone { self.gather() } else { None }
    }

    /// A lane that is idle and now is not: it takes along what waits.
    pub(super) fn gather(&mut self) -> Option<usize> {
        let lane = (0..self.open).find(|&lane| self.is_idle(lane))?;
        self.lanes[lane].stage = Stage::Gathering;
        Some(lane)
    }

    /// Whether a lane is about to leave, so that what waits leaves with it.
    pub(super) fn is_gathering(&self) -> bool {
        self.lanes.iter().any(Lane::is_gathering)
    }

    /// The calls that those who wait for them drive, of these lanes.
    pub(super) fn take_handed(&mut self, of: impl Fn(&Lane) -> bool) -> Vec<Arc<Handed>> {
        let lanes = self.lanes.iter_mut().filter(|lane| of(lane));
        lanes.filter_map(|lane| lane.handed.take()).collect()
    }

    /// Why nobody can be asked.
    pub(super) fn error(&self) -> BackendError {
        // A stalled connection is still there, and says nothing.
        let stalled = self.wires.iter().any(|wire| wire.stalled > 0);
        match &self.why {
            Some(why) if !stalled => again(why),
            _ => BackendError::new(FailureKind::Unreachable, NO_ANSWER),
        }
    }

    /// Any connection that answers.
    pub(super) fn connection(&self) -> Option<Connection> {
        let mut alive = self.wires.iter().filter(|wire| wire.is_alive());
        alive.find_map(|wire| wire.connection.clone())
    }

    fn wire(&self, lane: usize) -> usize {
        lane % self.wires.len()
    }

    fn is_idle(&self, lane: usize) -> bool {
        self.lanes[lane].stage == Stage::Idle && self.wires[self.wire(lane)].is_alive()
    }

    /// A lane's call leaves, if there is a connection for it.
    fn calls(&mut self, lane: usize) -> Option<(Connection, Place)> {
        let wire = self.wire(lane);
        let wire = &self.wires[wire];
        let (connection, number) = (wire.connection.clone()?, wire.number);
        let of_lane = &mut self.lanes[lane];
        (of_lane.stage, of_lane.number) = (Stage::Calling, number);
        Some((connection, Place { lane, number }))
    }

    /// Whether the connection of a call is the one that there is.
    fn is_current(&self, place: Place) -> bool {
        self.wires[self.wire(place.lane)].number == place.number
    }

    /// A call is over. Whether its lane is free by that: where the connection was given up meanwhile it was so before.
    fn rest(&mut self, place: Place) -> bool {
        let lane = &mut self.lanes[place.lane];
        if lane.stage != Stage::Calling || lane.number != place.number {
            return false;
        }
        let was = mem::take(lane);
        let wire = self.wire(place.lane);
        let wire = &mut self.wires[wire];
        if was.stalled && was.number == wire.number {
            wire.stalled = wire.stalled.saturating_sub(1);
        }
        true
    }

    /// A connection is not used again. Its calls keep nobody from another one: those who wait for them hear what becomes of
    /// them, or that their deadline has passed.
    fn give_up_wire(&mut self, wire: usize) {
        let number = self.wires[wire].number;
        self.wires[wire].give_up();
        let lanes = self.lanes.iter_mut().skip(wire).step_by(self.wires.len());
        for lane in lanes {
            if lane.stage == Stage::Calling && lane.number == number {
                *lane = Lane::default();
            }
        }
    }

    /// As many lanes are open as there are to be calls on each connection.
    fn open(&mut self) {
        self.open = self.wires.len() * self.pace.calls();
        if self.lanes.len() < self.open {
            self.lanes.resize_with(self.open, Lane::default);
        }
    }
}

/// Sends what waits over a lane, call by call, until nothing does. Each leaves after those who are ready to ask.
pub(super) async fn work(dispatch: Arc<Dispatch>, lane: usize) {
    let mut goes_on = true;
    while goes_on {
        after_others().await;
        goes_on = call(&dispatch, lane).await;
    }
}

/// The same, of which the first call leaves at once.
pub(super) async fn lead(dispatch: Arc<Dispatch>, lane: usize) {
    if call(&dispatch, lane).await {
        work(dispatch, lane).await;
    }
}

/// Whether there is another to send.
async fn call(dispatch: &Arc<Dispatch>, lane: usize) -> bool {
    let Some((connection, place, jobs)) = dispatch.depart(lane) else {
        return false;
    };
    call::run(dispatch, place, connection, jobs).await && dispatch.goes_on(place)
}

/// Lets those run first who are ready to: a task that wakes itself stands at the end of their line.
async fn after_others() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Dispatch {
    /// What a lane that has gathered takes along. It is idle again if that is nothing.
    fn depart(self: &Arc<Self>, lane: usize) -> Option<(Connection, Place, Vec<Job>)> {
        let mut state = self.state();
        let now = Instant::now();
        let (mut jobs, mut late) = (Vec::new(), Vec::new());
        let on_its_way = state.calls(lane);
        while on_its_way.is_some() && jobs.is_empty() && !state.queue.is_empty() {
            let turn = self.batch(&mut state, now);
            jobs = turn.jobs;
            late.extend(turn.late);
        }
        let departed = match on_its_way {
            Some((connection, place)) if !jobs.is_empty() => {
                self.pump(state);
                Some((connection, place, jobs))
            }
            _ => {
                state.lanes[lane] = Lane::default();
                drop(state);
                None
            }
        };
        self.fail_as_late(late, now);
        departed
    }

    /// A lane's call is over, and the connection good for another. Whether it has somebody to take along.
    fn goes_on(self: &Arc<Self>, place: Place) -> bool {
        let mut state = self.state();
        let is_free = state.rest(place);
        if state.queue.is_empty() || state.is_gathering() {
            return false;
        }
        let lane = place.lane;
        if !is_free || lane >= state.open || !state.is_idle(lane) {
            self.pump(state);
            return false;
        }
        state.lanes[lane].stage = Stage::Gathering;
        true
    }

    /// There is a new connection.
    pub(crate) fn connected(self: &Arc<Self>, wire: usize, opened: Opened) {
        let mut state = self.state();
        state.give_up_wire(wire);
        let place = &mut state.wires[wire];
        place.connection = Some(opened.connection);
        place.server = opened.server;
        state.pace.connected(Instant::now(), opened.round_trip);
        state.open();
        (state.why, state.opening) = (None, false);
        self.pump(state);
    }

    /// A connection could not be made.
    pub(crate) fn not_connected(&self, error: &BackendError) {
        let mut state = self.state();
        (state.why, state.opening) = (Some(again(error)), false);
        Self::give_up(state, error);
    }

    /// Whether nobody knows yet if it can be connected to.
    pub(crate) fn is_opening(&self) -> bool {
        self.state().opening
    }

    /// A call was answered after so long. Whether its connection is still the one that there is: one that was given up for what
    /// another call was told is not to be believed.
    pub(crate) fn answered(&self, place: Place, round_trip: Duration) -> bool {
        let mut state = self.state();
        state.pace.answered(Instant::now(), round_trip);
        state.open();
        state.is_current(place)
    }

    /// How long a call may take that is not to count as stalled, although somebody was answered too late: who is near the
    /// deadline is so by a hair.
    pub(crate) fn patience(&self) -> Duration {
        let round_trip = self.state().pace.round_trip();
        round_trip.map_or(Duration::ZERO, |round_trip| round_trip * 2)
    }

    /// A lane's call should have been answered: a lost packet, or the server. The other connections tell which, by a call of our
    /// own where no caller's is on its way. If none is left, nobody waits for another.
    pub(crate) fn stalled(self: &Arc<Self>, place: Place) {
        let mut state = self.state();
        let lane = &state.lanes[place.lane];
        if lane.stalled || lane.number != place.number || !state.is_current(place) {
            return;
        }
        state.lanes[place.lane].stalled = true;
        let wire = state.wire(place.lane);
        state.wires[wire].stalled += 1;
        state.pace.stalled();
        state.open();
        for lane in 0..state.wires.len() {
            self.probe(&mut state, lane);
        }
        // Whoever waited for this one has an answer, and the others' are to tell.
        let handed = state.take_handed(|_any| true);
        Self::give_up(state, &BackendError::new(self.timed_out(), ""));
        handed.iter().for_each(|handed| handed.take_over());
    }

    /// Asks over an idle lane for the time: every server of ours answers that, whatever its keys are.
    fn probe(self: &Arc<Self>, state: &mut State, lane: usize) {
        if !state.is_idle(lane) {
            return;
        }
        let Some((connection, place)) = state.calls(lane) else {
            return;
        };
        let (job, answer) = Job::awaited(Request::nothing(), self.deadline());
        let dispatch = Arc::clone(self);
        self.spawn(async move {
            if call::run(&dispatch, place, connection, vec![job]).await {
                dispatch.free(place);
            }
            // Until here somebody waits: what nobody waits for is not sent.
            drop(answer);
        });
    }

    /// A lane's call is over, and the connection good for another.
    pub(crate) fn free(self: &Arc<Self>, place: Place) {
        let mut state = self.state();
        let _was_its = state.rest(place);
        self.pump(state);
    }

    /// The connection of a call is not to be used again.
    pub(crate) fn broken(self: &Arc<Self>, place: Place, error: &BackendError) {
        let mut state = self.state();
        let _was_its = state.rest(place);
        if !state.is_current(place) {
            // Another call has said so before.
            return self.pump(state);
        }
        let wire = state.wire(place.lane);
        state.give_up_wire(wire);
        state.why = Some(again(error));
        Self::give_up(state, error);
        reconnect::spawn(self, wire);
    }

    /// Another server is the master. Connections that lead elsewhere are given up, and made again without a pause: what was on
    /// its way there may have been done by one whose word counts no more.
    pub(crate) fn is_replaced_by(self: &Arc<Self>, master: &Address) {
        let mut state = self.state();
        let mut given_up = Vec::new();
        for number in 0..state.wires.len() {
            let wire = &state.wires[number];
            if wire.connection.is_some() && wire.server.as_ref() != Some(master) {
                state.give_up_wire(number);
                given_up.push(number);
            }
        }
        let error = BackendError::new(FailureKind::Unreachable, REPLACED);
        if !given_up.is_empty() {
            state.why = Some(again(&error));
        }
        Self::give_up(state, &error);
        for wire in given_up {
            reconnect::spawn(self, wire);
        }
        self.hurry.notify_waiters();
    }

    /// Fails all that wait, if there is nothing that they could wait for.
    fn give_up(mut state: MutexGuard<'_, State>, error: &BackendError) {
        if state.is_hopeful() {
            return;
        }
        let (waiting, unattended): (Vec<_>, Vec<_>) =
            state.queue.drain().partition(Job::is_pending);
        for job in unattended {
            state.queue.push(job);
        }
        drop(state);
        for mut job in waiting {
            job.fail(error.kind(), NO_ANSWER);
        }
    }
}

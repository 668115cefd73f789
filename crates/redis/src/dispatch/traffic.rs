//! The queue, the connections, and the calls that they carry.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{BackendError, FailureKind};

use super::pace::Pace;
use super::{MAX_REQUESTS, NO_ANSWER};
use crate::connection::{Connection, Ended};
use crate::error::again;
use crate::inline_call::InlineCall;
use crate::job::Job;
use crate::link::Handshake;
use crate::queue::Queue;
use crate::server::Address;
use crate::sync::Instant;

#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) queue: Queue,
    wires: Vec<Wire>,
    /// The lanes of the first connection, the second and so on, repeated for each call that a connection carries at once.
    pub(super) lanes: Vec<Lane>,
    /// The number of lanes that may take jobs along.
    open: usize,
    pub(super) pace: Pace,
    /// What jobs wait for when there is no connection. It stays when it is over, until there is one.
    pub(super) hope: Option<Hope>,
    /// True while a timer tells the end of a hope.
    pub(super) is_hope_timed: bool,
    /// The time since which a connection must have answered to be used: that at which a call stalled.
    pub(super) doubts_until: Option<Instant>,
    /// The reason why the latest connection was lost or not made, for jobs that find none.
    pub(super) why: Option<BackendError>,
    /// True once the node has left the cluster, so that nothing would ever come for the jobs that wait here.
    pub(super) has_left: bool,
    /// True once the runtime, on which all tasks run, has ended.
    pub(super) has_ended: bool,
    /// True while a timer is set for waiting callers.
    pub(super) is_watched: bool,
}

/// A connection, or its vacant place.
#[derive(Debug, Default)]
struct Wire {
    connection: Option<Connection>,
    ended: Option<Ended>,
    /// The server that it leads to, if that is known.
    server: Option<Address>,
    /// The number of connections that this place has had. A call reports its own, so that a late report on an earlier one is
    /// ignored.
    number: u64,
    /// The number of its calls that should have been answered, and are not.
    stalled: usize,
    /// The first of its connections whose answers are believed.
    believed_from: u64,
    /// True while another connection is being made for it.
    is_opening: bool,
    /// The time of the latest answer.
    heard_at: Option<Instant>,
    /// The time since which it has a connection.
    since: Option<Instant>,
    /// The number of its latest connections that ended soon after they were made.
    short_lives: u32,
}

/// Jobs wait for another connection until this time, or until so many attempts to make one have failed.
#[derive(Debug)]
pub(super) struct Hope {
    pub(super) until: Instant,
    pub(super) attempts: usize,
}

/// The life below which a connection counts as short: a server or proxy that takes connections and closes them is not asked in a loop.
const SHORT_LIFE: Duration = Duration::from_secs(1);

impl Wire {
    fn is_open(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| !ended.has_come())
    }

    /// True if it can carry calls.
    fn is_alive(&self) -> bool {
        self.is_open() && self.stalled == 0
    }

    /// Replaces its connection. Calls that are on their way over that are answered still.
    fn replace(&mut self) {
        *self = Self {
            number: self.number + 1,
            believed_from: self.believed_from,
            is_opening: self.is_opening,
            short_lives: self.short_lives,
            ..Self::default()
        };
    }
}

/// A lane carries one call at a time over its connection. One lane is enough if the server is near: more would only make calls
/// smaller.
#[derive(Debug, Default)]
pub(super) struct Lane {
    stage: Stage,
    /// True if its call should have been answered, and is not.
    stalled: bool,
    /// The connection that its call went out over.
    number: u64,
    /// The inline call, which its caller's future drives.
    pub(super) inline: Option<Arc<InlineCall>>,
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// Leaves once the ready tasks have asked.
    Gathering,
    Calling,
}

/// The name of a call: its lane, and which of the lane's connections it uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    lane: usize,
    pub(super) number: u64,
}

impl Lane {
    pub(super) fn is_gathering(&self) -> bool {
        self.stage == Stage::Gathering
    }
}

impl Traffic {
    /// Without any connection yet; jobs may wait for the first.
    pub(super) fn new(wires: usize, hope: Option<Hope>) -> Self {
        Self {
            queue: Queue::default(),
            wires: (0..wires).map(|_| Wire::default()).collect(),
            lanes: (0..wires).map(|_| Lane::default()).collect(),
            open: wires,
            pace: Pace::default(),
            hope,
            is_hope_timed: false,
            doubts_until: None,
            why: None,
            has_left: false,
            has_ended: false,
            is_watched: false,
        }
    }

    /// Says whether an answer is likely enough to wait for.
    pub(super) fn is_hopeful(&self) -> bool {
        let hope = self.hope.as_ref();
        let hopes = hope.is_some_and(|hope| hope.attempts > 0 && Instant::now() < hope.until);
        // A connection that has ended is about to be made again, once the task that keeps it has run.
        let has_ended = |wire: &Wire| wire.connection.is_some() && !wire.is_open();
        hopes || self.is_connected() || self.wires.iter().any(has_ended)
    }

    /// Says whether there is a connection over which a call may leave.
    pub(super) fn is_connected(&self) -> bool {
        self.wires.iter().any(|wire| self.is_in_use(wire))
    }

    /// Says whether the first attempt to connect is still under way.
    pub(super) fn is_opening(&self) -> bool {
        self.is_hopeful() && self.why.is_none() && !self.wires.iter().any(Wire::is_alive)
    }

    /// Says whether a connection can carry calls, and is not in doubt.
    fn is_in_use(&self, wire: &Wire) -> bool {
        let is_heard = self
            .doubts_until
            .is_none_or(|until| wire.heard_at.is_some_and(|heard_at| heard_at >= until));
        is_heard && wire.is_alive()
    }

    /// Notes that a connection could not be made.
    pub(super) fn not_connected(&mut self, error: &BackendError) {
        // A server that answers, with whatever reason, is not about to be there.
        let is_away = error.kind() == FailureKind::Unreachable;
        if let Some(hope) = &mut self.hope {
            hope.attempts = if is_away {
                hope.attempts.saturating_sub(1)
            } else {
                0
            };
        }
        self.why = Some(again(error));
    }

    /// Says whether no more jobs may wait. Jobs with and without a caller have separate room.
    pub(super) fn is_full(&self, is_awaited: bool, most: usize) -> bool {
        let waiting = if is_awaited {
            self.queue.awaited()
        } else {
            self.queue.unattended()
        };
        waiting >= most
    }

    /// Says whether a new job's answer would come after its deadline, if all jobs before it left in full calls and these were
    /// answered as fast as any recent one.
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

    /// The lane for a job that is alone, if no other job waits.
    pub(super) fn leads(&mut self) -> Option<usize> {
        let is_alone =
            self.queue.len() == 1 && self.lanes.iter().all(|lane| lane.stage == Stage::Idle);
        if is_alone { self.gather() } else { None }
    }

    /// Takes an idle lane, to take waiting jobs along.
    pub(super) fn gather(&mut self) -> Option<usize> {
        let lane = (0..self.open).find(|&lane| self.is_idle(lane))?;
        self.lanes[lane].stage = Stage::Gathering;
        Some(lane)
    }

    /// Says whether a lane is about to leave, so that waiting jobs leave with it.
    pub(super) fn is_gathering(&self) -> bool {
        self.lanes.iter().any(Lane::is_gathering)
    }

    /// The inline calls of these lanes, which their callers drive.
    pub(super) fn take_inline_calls(&mut self, of: impl Fn(&Lane) -> bool) -> Vec<Arc<InlineCall>> {
        let lanes = self.lanes.iter_mut().filter(|lane| of(lane));
        lanes.filter_map(|lane| lane.inline.take()).collect()
    }

    /// The reason why no server can be asked.
    pub(super) fn error(&self) -> BackendError {
        // A stalled connection is still open, but silent.
        let stalled = self.wires.iter().any(|wire| wire.stalled > 0);
        match &self.why {
            Some(why) if !stalled => again(why),
            _ => BackendError::new(FailureKind::Unreachable, NO_ANSWER),
        }
    }

    /// Any connection that answers.
    pub(super) fn connection(&self) -> Option<Connection> {
        let mut alive = self.wires.iter().filter(|wire| self.is_in_use(wire));
        alive.find_map(|wire| wire.connection.clone())
    }

    pub(super) fn wire_of(&self, place: Place) -> usize {
        self.wire(place.lane)
    }

    fn wire(&self, lane: usize) -> usize {
        lane % self.wires.len()
    }

    pub(super) fn is_idle(&self, lane: usize) -> bool {
        self.lanes[lane].stage == Stage::Idle && self.is_in_use(&self.wires[self.wire(lane)])
    }

    /// Starts a lane's call, if there is a connection for it.
    pub(super) fn calls(&mut self, lane: usize) -> Option<(Connection, Place)> {
        let wire = self.wire(lane);
        let wire = &self.wires[wire];
        let connection = wire.connection.clone().filter(|_| wire.is_open())?;
        let number = wire.number;
        let of_lane = &mut self.lanes[lane];
        (of_lane.stage, of_lane.number) = (Stage::Calling, number);
        Some((connection, Place { lane, number }))
    }

    /// Says whether the connection of a call is still in use.
    pub(super) fn is_current(&self, place: Place) -> bool {
        self.wires[self.wire(place.lane)].number == place.number
    }

    /// Ends a call. Says whether that frees its lane: if the connection was closed meanwhile, the lane was free before.
    pub(super) fn rest(&mut self, place: Place) -> bool {
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

    /// Makes a lane idle that has gathered no jobs.
    pub(super) fn stays(&mut self, lane: usize) {
        self.lanes[lane] = Lane::default();
    }

    /// Lets the lane of an ended call gather the next. Says whether there is a connection for that, and the lane is still open.
    pub(super) fn gathers_again(&mut self, place: Place) -> bool {
        let gathers = place.lane < self.open && self.is_idle(place.lane);
        if gathers {
            self.lanes[place.lane].stage = Stage::Gathering;
        }
        gathers
    }

    /// Says whether a connection must be made for a wire, as none is being made yet.
    pub(super) fn opens(&mut self, wire: usize) -> bool {
        !mem::replace(&mut self.wires[wire].is_opening, true)
    }

    /// Notes a new connection. Returns its number.
    pub(super) fn connected(&mut self, wire: usize, opened: Handshake) -> u64 {
        self.replace(wire);
        let place = &mut self.wires[wire];
        (place.connection, place.ended) = (Some(opened.connection), Some(opened.ended));
        place.server = opened.server;
        place.is_opening = false;
        let now = Instant::now();
        (place.since, place.heard_at) = (Some(now), Some(now));
        let number = place.number;
        self.pace.connected(now, opened.round_trip);
        self.open();
        (self.why, self.hope) = (None, None);
        number
    }

    /// Notes that a connection has ended while nobody used it. Returns how many in a row have had a short life, unless it had been given up
    /// before.
    pub(super) fn ended(&mut self, wire: usize, number: u64, error: &BackendError) -> Option<u32> {
        let place = &mut self.wires[wire];
        if place.number != number {
            return None;
        }
        let lived = place
            .since
            .map(|since| Instant::now().saturating_duration_since(since));
        place.short_lives = match lived {
            Some(lived) if lived < SHORT_LIFE => place.short_lives.saturating_add(1),
            _ => 0,
        };
        let short_lives = place.short_lives;
        self.replace(wire);
        self.why = Some(again(error));
        Some(short_lives)
    }

    /// A lane of this connection, if it is in use and carries no call.
    pub(super) fn unused(&self, wire: usize, number: u64) -> Option<bool> {
        let is_current = self.wires[wire].number == number;
        is_current.then(|| self.is_idle(wire))
    }

    /// Notes that a call was answered after this time. Says whether the answers of its connection are believed.
    pub(super) fn answered(&mut self, place: Place, round_trip: Duration) -> bool {
        let now = Instant::now();
        self.pace.answered(now, round_trip);
        self.open();
        let wire = self.wire(place.lane);
        let wire = &mut self.wires[wire];
        wire.heard_at = Some(now);
        place.number >= wire.believed_from
    }

    /// Notes a call that should have been answered. Says whether that is news, and about a connection in use.
    pub(super) fn stalled(&mut self, place: Place) -> bool {
        let lane = &self.lanes[place.lane];
        if lane.stalled || lane.number != place.number || !self.is_current(place) {
            return false;
        }
        self.lanes[place.lane].stalled = true;
        let wire = self.wire(place.lane);
        self.wires[wire].stalled += 1;
        self.pace.stalled();
        self.open();
        true
    }

    /// Closes the connection of a call for this reason. Returns its position.
    pub(super) fn broken(&mut self, place: Place, error: &BackendError) -> usize {
        let wire = self.wire(place.lane);
        self.give_up_wire(wire);
        self.why = Some(again(error));
        wire
    }

    /// Closes the connections that lead to another server. Returns their positions.
    pub(super) fn give_up_all_but(&mut self, server: &Address) -> Vec<usize> {
        let leads_elsewhere =
            |wire: &Wire| wire.connection.is_some() && wire.server.as_ref() != Some(server);
        let given_up: Vec<_> = (0..self.wires.len())
            .filter(|&wire| leads_elsewhere(&self.wires[wire]))
            .collect();
        for &wire in &given_up {
            self.give_up_wire(wire);
        }
        given_up
    }

    /// Closes a connection: it is neither used again, nor are its answers believed.
    fn give_up_wire(&mut self, wire: usize) {
        self.replace(wire);
        self.wires[wire].believed_from = self.wires[wire].number;
    }

    /// Frees a place for another connection. Calls over the one before do not block that: their callers hear the outcome, or that the
    /// deadline has passed.
    fn replace(&mut self, wire: usize) {
        let number = self.wires[wire].number;
        self.wires[wire].replace();
        let lanes = self.lanes.iter_mut().skip(wire).step_by(self.wires.len());
        for lane in lanes {
            if lane.stage == Stage::Calling && lane.number == number {
                *lane = Lane::default();
            }
        }
    }

    /// Opens as many lanes as each connection carries calls.
    fn open(&mut self) {
        self.open = self.wires.len() * self.pace.calls();
        if self.lanes.len() < self.open {
            self.lanes.resize_with(self.open, Lane::default);
        }
    }
}

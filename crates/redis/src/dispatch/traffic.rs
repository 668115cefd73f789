//! What waits and what is on its way: the queue, the connections, and which of them carries a call.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{BackendError, FailureKind};

use super::pace::Pace;
use super::{MAX_REQUESTS, NO_ANSWER};
use crate::connection::Connection;
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
    pub(super) inline: Option<Arc<InlineCall>>,
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

impl Traffic {
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
    pub(super) fn take_inline_calls(&mut self, of: impl Fn(&Lane) -> bool) -> Vec<Arc<InlineCall>> {
        let lanes = self.lanes.iter_mut().filter(|lane| of(lane));
        lanes.filter_map(|lane| lane.inline.take()).collect()
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

    pub(super) fn is_idle(&self, lane: usize) -> bool {
        self.lanes[lane].stage == Stage::Idle && self.wires[self.wire(lane)].is_alive()
    }

    /// A lane's call leaves, if there is a connection for it.
    pub(super) fn calls(&mut self, lane: usize) -> Option<(Connection, Place)> {
        let wire = self.wire(lane);
        let wire = &self.wires[wire];
        let (connection, number) = (wire.connection.clone()?, wire.number);
        let of_lane = &mut self.lanes[lane];
        (of_lane.stage, of_lane.number) = (Stage::Calling, number);
        Some((connection, Place { lane, number }))
    }

    /// Whether the connection of a call is the one that there is.
    pub(super) fn is_current(&self, place: Place) -> bool {
        self.wires[self.wire(place.lane)].number == place.number
    }

    /// A call is over. Whether its lane is free by that: where the connection was given up meanwhile it was so before.
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

    /// A lane that has gathered nobody is idle again.
    pub(super) fn stays(&mut self, lane: usize) {
        self.lanes[lane] = Lane::default();
    }

    /// The lane of a call that is over gathers the next. Whether there is a connection for that, and the lane is still open.
    pub(super) fn gathers_again(&mut self, place: Place) -> bool {
        let gathers = place.lane < self.open && self.is_idle(place.lane);
        if gathers {
            self.lanes[place.lane].stage = Stage::Gathering;
        }
        gathers
    }

    /// A connection was made.
    pub(super) fn connected(&mut self, wire: usize, opened: Handshake) {
        self.give_up_wire(wire);
        let place = &mut self.wires[wire];
        place.connection = Some(opened.connection);
        place.server = opened.server;
        self.pace.connected(Instant::now(), opened.round_trip);
        self.open();
        (self.why, self.opening) = (None, false);
    }

    /// A call was answered after so long. Whether its connection is the one that there is.
    pub(super) fn answered(&mut self, place: Place, round_trip: Duration) -> bool {
        self.pace.answered(Instant::now(), round_trip);
        self.open();
        self.is_current(place)
    }

    /// A call should have been answered. Whether that is news, and of a connection that is in use.
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

    /// The connection of a call is given up, for this reason. Which one that is.
    pub(super) fn broken(&mut self, place: Place, error: &BackendError) -> usize {
        let wire = self.wire(place.lane);
        self.give_up_wire(wire);
        self.why = Some(again(error));
        wire
    }

    /// Gives up the connections that lead to another server. Which they are.
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

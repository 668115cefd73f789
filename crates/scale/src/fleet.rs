//! A run: events in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use tollgate_core::{Blocks, Call, Key, Lease, Quota, State, Timestamp, Verdict, decide};

use crate::agent::{Agent, Job, Lane, Local, Origin, Work};
use crate::outcome::{Moment, Outcome, Pass, Span, Tracked};
use crate::server::{Server, charge, service_ns};
use crate::settings::{Settings, Shape};

/// An agent remembers keys of which it sees so many requests in one time of a lease; 100 ms without leases. The others are asked
/// about one by one: hardly ever do enough come together for a block.
const LEAST_DEMAND: f64 = 0.05;

/// The most keys that all agents remember together, so that a run fits into memory.
const MOST_LOCALS: u32 = 500_000;

/// The life of a known denial.
const KNOWN_US: u64 = 100_000;

/// The time after which a crashed process is back.
const RESTART_NS: u64 = 1_000_000_000;

/// The most requests that wait for one server.
const MOST_WAITING: usize = 16_384;

/// One in so many waits is noted.
const ONE_IN: u64 = 7;

/// The slots of a cluster.
const SLOTS: u64 = 16_384;

#[derive(Clone, Copy, Debug)]
enum Answer {
    Told(Verdict, Timestamp),
    Failed,
}

#[derive(Debug)]
enum Event {
    /// A call reaches a server.
    Arrive {
        server: usize,
        agent: usize,
        epoch: u32,
        jobs: Vec<Job>,
    },
    /// Answers reach an agent, on a call's way back or by themselves.
    Reply {
        agent: usize,
        epoch: u32,
        of_call_to: Option<usize>,
        answers: Vec<(Job, Answer)>,
    },
    /// A block has ended.
    End {
        agent: usize,
        epoch: u32,
        key: u32,
    },
    Crash,
    Restart(usize),
}

struct Fleet<'a> {
    settings: &'a Settings,
    random: Rng,
    now_ns: u64,
    end_ns: u64,
    agents: Vec<Agent>,
    servers: Vec<Server>,
    /// The store of each region, if it has one.
    stores: Vec<Option<usize>>,
    /// Keys with a lower number are remembered by agents.
    head: u32,
    quotas: Vec<Quota>,
    /// The node of each hash tag.
    tags: Vec<u32>,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    kept: Vec<Option<Event>>,
    free: Vec<usize>,
    number: u64,
    /// The states that one limiter for all would have.
    ideal: Vec<State>,
    waits_us: Vec<u32>,
    outcome: Outcome,
}

/// Runs a fleet from beginning to end.
#[must_use]
pub fn simulate(settings: &Settings) -> Outcome {
    let mut fleet = Fleet::new(settings);
    fleet.run();
    fleet.finish()
}

/// CRC-16 as a cluster counts slots.
fn slot_of(tag: u16) -> u64 {
    let crc = tag.to_string().bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    });
    u64::from(crc) % SLOTS
}

/// A tag by a hash of the key (the finalizer of splitmix64).
fn tag_of(key: u32, partitions: u16) -> u16 {
    let mut hash = u64::from(key).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((hash ^ (hash >> 31)) % u64::from(partitions)) as u16
}

impl<'a> Fleet<'a> {
    fn new(settings: &'a Settings) -> Self {
        let load = &settings.load;
        let lease_us = settings
            .lease
            .map_or(100_000, |it| it.time().as_micros() as u64);
        let in_a_lease =
            |key| load.demand(key) * lease_us as f64 / 1e6 / f64::from(settings.processes);
        let head = (0..load.keys()).take_while(|&key| in_a_lease(key) >= LEAST_DEMAND);
        let head = (head.count() as u32).min(MOST_LOCALS / settings.processes);
        let tracked = settings.tracked.min(load.keys());
        let splits = match settings.shape {
            Shape::Split => settings.regions,
            Shape::Home | Shape::Nested { .. } => 1,
        };
        let quotas: Vec<_> = (0..head.max(tracked))
            .map(|key| load.quota(key, splits))
            .collect();
        let whole = (0..tracked).map(|key| load.quota(key, 1));
        let ideal = whole.clone().map(|quota| State::full(&quota)).collect();

        let agents = (0..settings.processes).map(|number| Agent::new(number % settings.regions));
        let mut agents: Vec<_> = agents.collect();
        let homes = 0..splits;
        let servers = homes.flat_map(|region| (0..settings.nodes).map(move |_| region));
        let mut servers: Vec<_> = servers.map(|region| Server::new(region, None)).collect();
        let mut stores = vec![None; settings.regions as usize];
        if let Shape::Nested { .. } = settings.shape {
            for region in 1..settings.regions {
                stores[region as usize] = Some(servers.len());
                servers.push(Server::new(region, Some(agents.len())));
                agents.push(Agent::new(region));
            }
        }
        let partitions = if settings.nodes == 1 {
            1
        } else {
            settings.partitions
        };
        let node = |tag| (slot_of(tag) * u64::from(settings.nodes) / SLOTS) as u32;
        Self {
            settings,
            random: Rng::with_seed(settings.seed),
            now_ns: 0,
            end_ns: (settings.warm_up_us + settings.run_us) * 1_000,
            agents,
            servers,
            stores,
            head,
            quotas,
            tags: (0..partitions).map(node).collect(),
            events: BinaryHeap::new(),
            kept: Vec::new(),
            free: Vec::new(),
            number: 0,
            ideal,
            waits_us: Vec::new(),
            outcome: Outcome {
                tracked: whole
                    .map(|quota| Tracked {
                        quota,
                        passes: Vec::new(),
                        moments: Vec::new(),
                    })
                    .collect(),
                ..Outcome::default()
            },
        }
    }

    fn run(&mut self) {
        if let Some(each_us) = self.settings.crash_every_us {
            self.after(each_us * 1_000, Event::Crash);
        }
        let mut next = self.settings.load.next(0.0, &mut self.random);
        loop {
            let next_ns = next as u64;
            match self.events.peek() {
                Some(&Reverse((at_ns, ..))) if at_ns <= next_ns || next_ns >= self.end_ns => {
                    let Some(Reverse((at_ns, _, place))) = self.events.pop() else {
                        return;
                    };
                    // Answers that are on their way still come. Nothing else goes on for ever.
                    if at_ns > self.end_ns + self.settings.deadline_us * 2_000 {
                        return;
                    }
                    self.now_ns = at_ns;
                    self.free.push(place);
                    if let Some(event) = self.kept[place].take() {
                        self.happens(event);
                    }
                }
                _ if next_ns >= self.end_ns => return,
                _ => {
                    self.now_ns = next_ns;
                    let key = self.settings.load.key(&mut self.random);
                    if let Some(process) = self.process() {
                        self.request(process, key);
                    }
                    next = self.settings.load.next(next, &mut self.random);
                }
            }
        }
    }

    fn finish(mut self) -> Outcome {
        let run_ns = self.settings.run_us as f64 * 1e3;
        let of_servers = |it: fn(&Server) -> u64| self.servers.iter().map(it);
        self.outcome.calls = of_servers(|server| server.calls).sum();
        let hottest = of_servers(Server::busy_ns).max().unwrap_or(0);
        self.outcome.hottest = hottest as f64 / run_ns;
        let calls = of_servers(|server| server.calls).max().unwrap_or(0);
        self.outcome.hottest_calls = calls as f64 * 1e9 / run_ns;
        self.outcome.nodes_in_use = of_servers(|server| server.calls.min(1)).sum::<u64>() as u32;
        self.waits_us.sort_unstable();
        let of_hundred = |part: usize| {
            let place = self.waits_us.len() * part / 100;
            self.waits_us.get(place).copied().unwrap_or(0).into()
        };
        self.outcome.median_wait_us = of_hundred(50);
        self.outcome.longest_wait_us = of_hundred(99);
        for tracked in &mut self.outcome.tracked {
            tracked.passes.sort_unstable();
        }
        self.outcome
    }

    fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    fn after(&mut self, ns: u64, event: Event) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.kept.push(None);
            self.kept.len() - 1
        });
        self.kept[place] = Some(event);
        self.number += 1;
        self.events
            .push(Reverse((self.now_ns + ns, self.number, place)));
    }

    /// A process that is alive.
    fn process(&mut self) -> Option<usize> {
        let processes = self.settings.processes as usize;
        let first = self.random.usize(..processes);
        let mut order = (0..processes).map(|step| (first + step) % processes);
        order.find(|&process| self.agents[process].is_alive)
    }

    fn quota(&self, key: u32) -> Quota {
        match self.quotas.get(key as usize) {
            Some(quota) => *quota,
            None => {
                let splits = match self.settings.shape {
                    Shape::Split => self.settings.regions,
                    Shape::Home | Shape::Nested { .. } => 1,
                };
                self.settings.load.quota(key, splits)
            }
        }
    }

    fn is_counted(&self, came_ns: u64) -> bool {
        (self.settings.warm_up_us * 1_000..self.end_ns).contains(&came_ns)
    }

    /// The server of a key for an agent.
    fn server_of(&self, agent: usize, key: u32) -> usize {
        let region = self.agents[agent].region;
        let is_process = agent < self.settings.processes as usize;
        if let (Some(store), true) = (self.stores[region as usize], is_process) {
            return store;
        }
        let tag = tag_of(key, self.tags.len() as u16);
        let node = self.tags[usize::from(tag)];
        let home = match self.settings.shape {
            Shape::Split => region,
            Shape::Home | Shape::Nested { .. } => 0,
        };
        (home * self.settings.nodes + node) as usize
    }

    fn round_trip_us(&self, agent: usize, server: usize) -> u64 {
        if self.agents[agent].region == self.servers[server].region {
            self.settings.near_us
        } else {
            self.settings.far_us
        }
    }

    /// Half a round trip, and up to a fifth more.
    fn way_ns(&mut self, agent: usize, server: usize) -> u64 {
        let half = self.round_trip_us(agent, server) * 500;
        half + self.random.u64(..=half / 5)
    }

    /// Says whether nothing comes through between an agent and a server now.
    fn is_cut(&self, agent: usize, server: usize) -> bool {
        let regions = [self.agents[agent].region, self.servers[server].region];
        let now_us = self.now_us();
        let is_now = |(from, to)| (from..to).contains(&now_us);
        regions[0] != regions[1]
            && regions.contains(&(self.settings.regions - 1))
            && self.settings.cut_us.is_some_and(is_now)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrive {
                server,
                agent,
                epoch,
                jobs,
            } => self.arrive(server, agent, epoch, jobs),
            Event::Reply {
                agent,
                epoch,
                of_call_to,
                answers,
            } => {
                if self.agents[agent].epoch != epoch {
                    return;
                }
                for (job, answer) in answers {
                    self.answered(agent, job, answer);
                }
                if let Some(server) = of_call_to {
                    if let Some(lane) = self.agents[agent].lanes.get_mut(&server) {
                        lane.arrived();
                    }
                    self.depart(agent, server);
                }
            }
            Event::End { agent, epoch, key } => {
                if self.agents[agent].epoch == epoch {
                    self.give_back_ended(agent, key);
                }
            }
            Event::Crash => {
                if let Some(process) = self.process() {
                    self.agents[process].crash();
                    self.after(RESTART_NS, Event::Restart(process));
                }
                if let Some(each_us) = self.settings.crash_every_us {
                    self.after(each_us * 1_000, Event::Crash);
                }
            }
            Event::Restart(process) => self.agents[process].is_alive = true,
        }
    }

    fn request(&mut self, process: usize, key: u32) {
        let (now_us, now_ns) = (self.now_us(), self.now_ns);
        if let Some(state) = self.ideal.get_mut(key as usize) {
            let quota = self.outcome.tracked[key as usize].quota;
            let name = Key::global();
            let states = std::slice::from_mut(state);
            let at = Timestamp::from_micros(now_us);
            let decision = decide(at, Call::of(&[charge(&quota, &name, 1)]), states);
            if self.is_counted(now_ns) {
                self.outcome.ideal += u64::from(decision.is_admitted());
            }
        }
        if key < self.head {
            if self.spend(process, key, 1).is_some() {
                self.passed(key, now_us);
                if self.is_counted(now_ns) {
                    self.outcome.by_block += 1;
                }
                self.count(process, key, now_ns, Some(true));
                return;
            }
            if self.is_known_denial(process, key) {
                if self.is_counted(now_ns) {
                    self.outcome.by_known += 1;
                }
                self.count(process, key, now_ns, Some(false));
                return;
            }
        }
        self.enqueue(
            process,
            Job {
                key,
                work: Work::Decide,
                came_ns: now_ns,
                origin: Origin::Own,
            },
        );
    }

    fn is_known_denial(&mut self, process: usize, key: u32) -> bool {
        let now_us = self.now_us();
        let local = self.agents[process].locals.get_mut(&key);
        let Some(Local {
            blocks,
            denial: Some((verdict, until_us)),
        }) = local
        else {
            return false;
        };
        if now_us >= *until_us {
            return false;
        }
        if let Some(blocks) = blocks {
            blocks.decided(verdict);
        }
        true
    }

    /// The terms by which an agent leases.
    fn terms(&self, agent: usize) -> Option<Lease> {
        let lease = self.settings.lease?;
        match self.settings.shape {
            Shape::Nested { within_ms } if agent >= self.settings.processes as usize => {
                let time = std::time::Duration::from_millis(within_ms);
                Some(Lease::up_to(lease.most().saturating_mul(100)).within(time))
            }
            _ => Some(lease),
        }
    }

    /// Spends from an agent's blocks, and asks for the next one if it is time.
    fn spend(&mut self, agent: usize, key: u32, cost: u64) -> Option<(Verdict, Timestamp)> {
        let (now_us, terms, quota) = (self.now_us(), self.terms(agent), self.quota(key));
        let late_us = self.settings.late_us;
        let name = Key::global();
        let charge = charge(&quota, &name, cost);
        let local = self.agents[agent]
            .locals
            .entry(key)
            .or_insert_with(|| Local {
                blocks: terms.map(|lease| Blocks::new(&charge, &lease, now_us, 0)),
                denial: None,
            });
        let blocks = local.blocks.as_mut()?;
        let part = blocks.spend(&charge, now_us);
        let asked = blocks.to_ask(now_us + late_us);
        if let Some((number, amount)) = asked {
            if self.is_counted(self.now_ns) {
                self.outcome.questions += 1;
            }
            self.give_back_ended(agent, key);
            let (came_ns, origin) = (self.now_ns, Origin::Own);
            let work = Work::Lease { number, amount };
            self.enqueue(
                agent,
                Job {
                    key,
                    work,
                    came_ns,
                    origin,
                },
            );
        }
        part.map(|part| (part.verdict, part.at))
    }

    fn give_back_ended(&mut self, agent: usize, key: u32) {
        let now_us = self.now_us();
        let local = self.agents[agent].locals.get_mut(&key);
        let blocks = local.and_then(|local| local.blocks.as_mut());
        let rests = blocks.map(|blocks| blocks.take_ended(now_us));
        for rest in rests.into_iter().flatten() {
            self.refund(agent, key, rest);
        }
    }

    fn refund(&mut self, agent: usize, key: u32, rest: (tollgate_core::Receipt, u64)) {
        if self.is_counted(self.now_ns) {
            self.outcome.credits += 1;
        }
        let job = Job {
            key,
            work: Work::Credit(Box::new(rest)),
            came_ns: self.now_ns,
            origin: Origin::Own,
        };
        self.enqueue(agent, job);
    }

    fn enqueue(&mut self, agent: usize, job: Job) {
        let server = self.server_of(agent, job.key);
        let round_trip_us = self.round_trip_us(agent, server);
        let lanes = &mut self.agents[agent].lanes;
        let lane = lanes
            .entry(server)
            .or_insert_with(|| Lane::new(round_trip_us));
        if lane.queue.len() >= MOST_WAITING {
            self.answered(agent, job, Answer::Failed);
            return;
        }
        lane.queue.push_back(job);
        self.depart(agent, server);
    }

    /// Sends as many calls to a server as may be under way.
    fn depart(&mut self, agent: usize, server: usize) {
        let deadline_ns = self.settings.deadline_us * 1_000;
        let partitions = self.tags.len() as u16;
        loop {
            let Some(lane) = self.agents[agent].lanes.get_mut(&server) else {
                return;
            };
            // The callers of the first ones may have heard already that there was no answer in time.
            let now_ns = self.now_ns;
            let mut late = Vec::new();
            while lane
                .queue
                .front()
                .is_some_and(|job| now_ns >= job.came_ns + deadline_ns)
            {
                late.extend(lane.queue.pop_front());
            }
            let departed = lane.depart(|key| tag_of(key, partitions));
            for job in late {
                self.answered(agent, job, Answer::Failed);
            }
            let Some(jobs) = departed else {
                return;
            };
            let epoch = self.agents[agent].epoch;
            if self.is_cut(agent, server) {
                let answers = jobs.into_iter().map(|job| (job, Answer::Failed)).collect();
                self.after(
                    deadline_ns,
                    Event::Reply {
                        agent,
                        epoch,
                        of_call_to: Some(server),
                        answers,
                    },
                );
            } else {
                let way_ns = self.way_ns(agent, server);
                self.after(
                    way_ns,
                    Event::Arrive {
                        server,
                        agent,
                        epoch,
                        jobs,
                    },
                );
            }
        }
    }

    fn arrive(&mut self, server: usize, agent: usize, epoch: u32, jobs: Vec<Job>) {
        let mut keys: Vec<_> = jobs.iter().map(|job| job.key).collect();
        let is_counted = self.is_counted(self.now_ns);
        let service_ns = service_ns(&mut keys);
        let [start_ns, done_ns] = self.servers[server].serve(self.now_ns, service_ns, is_counted);
        let mut answers = Vec::with_capacity(jobs.len());
        for job in jobs {
            let answer = match self.servers[server].store {
                None => Some(self.decide(server, agent, start_ns, &job)),
                Some(store) => self.decide_in_region(store, &job),
            };
            match (answer, job) {
                (Some(answer), job) => answers.push((job, answer)),
                (None, job) => {
                    // The store asks home about it, or gives it back there.
                    let store = self.servers[server].store.unwrap_or(agent);
                    let origin = match job.work {
                        Work::Credit(_) => Origin::Own,
                        Work::Decide | Work::Lease { .. } => Origin::Below { agent, epoch },
                    };
                    self.enqueue(store, Job { origin, ..job });
                }
            }
        }
        let way_ns = done_ns - self.now_ns + self.way_ns(agent, server);
        self.after(
            way_ns,
            Event::Reply {
                agent,
                epoch,
                of_call_to: Some(server),
                answers,
            },
        );
    }

    /// A server with the states decides.
    fn decide(&mut self, server: usize, agent: usize, at_ns: u64, job: &Job) -> Answer {
        let (at_us, key) = (at_ns / 1_000, job.key);
        let quota = self.quota(key);
        let server = &mut self.servers[server];
        let decision = match &job.work {
            Work::Decide => server.decide(at_us, key, &quota),
            Work::Lease { amount, .. } => server.grant(at_us, key, &quota, *amount),
            Work::Credit(rest) => {
                server.refund(at_us, key, &rest.0, rest.1);
                return Answer::Failed;
            }
        };
        let verdict = decision.verdicts()[0];
        if let (Work::Decide, Some(tracked)) =
            (&job.work, self.outcome.tracked.get_mut(key as usize))
        {
            if verdict.taken() > 0 {
                tracked.passes.push(Pass { at_us, cost: 1 });
            }
            tracked.moments.push(Moment {
                asked_us: job.came_ns / 1_000,
                process: agent as u32,
                decision: decision.clone(),
            });
        }
        Answer::Told(verdict, decision.at())
    }

    /// The store of a region decides out of its blocks, or not at all.
    fn decide_in_region(&mut self, store: usize, job: &Job) -> Option<Answer> {
        if job.key >= self.head {
            return None;
        }
        let cost = match &job.work {
            Work::Decide => 1,
            Work::Lease { amount, .. } => *amount,
            Work::Credit(_) => return None,
        };
        let (verdict, at) = self.spend(store, job.key, cost)?;
        if let Work::Decide = job.work {
            self.passed(job.key, self.now_us());
        }
        Some(Answer::Told(verdict, at))
    }

    /// An agent hears of a job.
    fn answered(&mut self, agent: usize, job: Job, answer: Answer) {
        if let Origin::Below {
            agent: below,
            epoch,
        } = job.origin
        {
            if let (Work::Decide, Answer::Told(verdict, _)) = (&job.work, answer)
                && let Some(local) = self.agents[agent].locals.get_mut(&job.key)
                && let Some(blocks) = &mut local.blocks
            {
                blocks.decided(&verdict);
            }
            let half = self.settings.near_us * 500;
            let way_ns = half + self.random.u64(..=half / 5);
            let origin = Origin::Own;
            let answers = vec![(Job { origin, ..job }, answer)];
            self.after(
                way_ns,
                Event::Reply {
                    agent: below,
                    epoch,
                    of_call_to: None,
                    answers,
                },
            );
            return;
        }
        match job.work {
            Work::Decide => self.decided(agent, &job, answer),
            Work::Lease { number, .. } => self.leased(agent, job.key, number, answer),
            Work::Credit(_) => {}
        }
    }

    fn decided(&mut self, process: usize, job: &Job, answer: Answer) {
        let is_late = self.now_ns > job.came_ns + self.settings.deadline_us * 1_000;
        let said = match answer {
            Answer::Told(verdict, _) => {
                if job.key < self.head {
                    let locals = &mut self.agents[process].locals;
                    let local = locals.entry(job.key).or_insert(Local {
                        blocks: None,
                        denial: None,
                    });
                    if let Some(blocks) = &mut local.blocks {
                        blocks.decided(&verdict);
                    }
                    // The wait was as long when the server decided, at the earliest when the call had just left.
                    let wait_us = verdict.retry_after().map(|wait| wait.as_micros() as u64);
                    local.denial = wait_us.map(|wait_us| {
                        let until_us = job.came_ns / 1_000 + wait_us.min(KNOWN_US);
                        (verdict, until_us)
                    });
                }
                (!is_late).then_some(verdict.is_allowed())
            }
            Answer::Failed => None,
        };
        let waited_us = (self.now_ns - job.came_ns) / 1_000;
        if self.is_counted(job.came_ns) {
            if self.outcome.requests.is_multiple_of(ONE_IN) && said.is_some() {
                self.waits_us.push(waited_us as u32);
            }
            let is_far = waited_us >= self.settings.far_us;
            self.outcome.far += u64::from(is_far && self.settings.regions > 1);
        }
        self.count(process, job.key, job.came_ns, said);
    }

    fn leased(&mut self, agent: usize, key: u32, number: u64, answer: Answer) {
        let now_us = self.now_us();
        let local = self.agents[agent].locals.get_mut(&key);
        let Some(blocks) = local.and_then(|local| local.blocks.as_mut()) else {
            return;
        };
        let (verdict, at) = match answer {
            Answer::Failed => {
                blocks.failed(number, now_us);
                return;
            }
            Answer::Told(verdict, _) if verdict.taken() == 0 => {
                blocks.refused(number, &verdict);
                return;
            }
            Answer::Told(verdict, at) => (verdict, at),
        };
        let surplus = blocks.granted(number, now_us, verdict, at);
        let ends_us = blocks.end_us_of(number);
        if let Some(rest) = surplus {
            self.refund(agent, key, rest);
        }
        if let Some(ends_us) = ends_us {
            let epoch = self.agents[agent].epoch;
            let wait_ns = (ends_us * 1_000).saturating_sub(self.now_ns);
            self.after(wait_ns, Event::End { agent, epoch, key });
        }
    }

    /// A request of a key passes, not by a server's decision.
    fn passed(&mut self, key: u32, at_us: u64) {
        if let Some(tracked) = self.outcome.tracked.get_mut(key as usize) {
            tracked.passes.push(Pass { at_us, cost: 1 });
        }
    }

    /// Counts what became of a request; `None` if it failed.
    fn count(&mut self, process: usize, key: u32, came_ns: u64, said: Option<bool>) {
        if self.settings.cut_us.is_some()
            && self.agents[process].region == self.settings.regions - 1
        {
            let span = (came_ns / 100_000_000) as usize;
            let spans = &mut self.outcome.spans;
            spans.resize(spans.len().max(span + 1), Span::default());
            spans[span].all += 1;
            spans[span].failed += u64::from(said.is_none());
        }
        if !self.is_counted(came_ns) {
            return;
        }
        let outcome = &mut self.outcome;
        outcome.requests += 1;
        outcome.failed += u64::from(said.is_none());
        if said == Some(true) {
            outcome.admitted += 1;
            if key < outcome.tracked.len() as u32 {
                outcome.tracked_admitted += 1;
            }
        }
    }
}

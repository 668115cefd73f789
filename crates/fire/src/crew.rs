//! The asking processes, seen from their parent.

mod inside;
mod stopping;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::inside::{Inside, lock};
pub(crate) use self::stopping::FEWEST_HOLDERS;
use crate::Result;
use crate::attempt::{Attempt, Outcome};
use crate::client::{HolderFigures, Line, Orders};
use crate::history::Wait;
use crate::hold::Hold;
use crate::instance::WaitingLine;
use crate::knock::Knock;
use crate::leased::Spend;
use crate::operator::OperatorCall;
use crate::order::Order;
use crate::replacement::Replacement;
use crate::ruling::Ruling;
use crate::wall::now_us;

/// The word that makes this program a client; its orders follow.
pub const CLIENT: &str = "client";

/// The time that clients may take to end: they still wait for their promises.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// All clients of a run, living and dead.
#[derive(Debug)]
pub(crate) struct Crew {
    program: PathBuf,
    orders: Orders,
    living: Vec<Client>,
    /// The records of dead clients.
    dead: Vec<JoinHandle<Record>>,
}

/// The record of a client.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) knocks: Vec<Knock>,
    pub(crate) spends: Vec<Spend>,
    pub(crate) operated: Vec<OperatorCall>,
    pub(crate) orders: Vec<Order>,
    pub(crate) lines: Vec<WaitingLine>,
    pub(crate) replaced: Vec<Replacement>,
    /// The decisions of a gateway process.
    pub(crate) rulings: Vec<Ruling>,
    /// The times in which that or its Envoy was away.
    pub(crate) away: Vec<Wait>,
    /// The figures of the clients that ended by themselves.
    pub(crate) figures: Vec<HolderFigures>,
    /// The defects of the client itself.
    pub(crate) wrongs: Vec<String>,
}

#[derive(Debug)]
struct Client {
    process: Child,
    inside: Arc<Mutex<Inside>>,
    record: JoinHandle<Record>,
}

impl Crew {
    /// Starts this many clients. `orders` are the first one's.
    pub(crate) fn start(program: PathBuf, orders: Orders, clients: u32) -> Result<Self> {
        let mut crew = Self {
            program,
            orders,
            living: Vec::new(),
            dead: Vec::new(),
        };
        for _ in 0..clients {
            crew.add()?;
        }
        Ok(crew)
    }

    /// Kills a client in the middle of its work, and starts another.
    pub(crate) fn replace_one(&mut self) -> Result<()> {
        if !self.living.is_empty() {
            let mut client = self.living.remove(0);
            client.process.kill()?;
            client.process.wait()?;
            self.dead.push(client.record);
        }
        self.add()
    }

    /// Has all clients give back what they hold, and go on with everything else.
    pub(crate) fn hold_nothing(&mut self) -> Result<()> {
        for client in &mut self.living {
            if let Some(orders) = &mut client.process.stdin {
                orders.write_all(b".")?;
                orders.flush()?;
            }
        }
        Ok(())
    }

    /// Ends all clients and returns their records. A client that does not end by itself is killed.
    pub(crate) fn finish(mut self) -> Record {
        for client in &mut self.living {
            // They go on until their input ends.
            drop(client.process.stdin.take());
        }
        let mut all = Record::default();
        let until = Instant::now() + LAST_WORDS;
        let mut records: Vec<_> = self.dead.drain(..).collect();
        for mut client in self.living.drain(..) {
            let ended = ended(&mut client.process, until);
            all.wrongs
                .extend(ended.err().map(|error| error.to_string()));
            records.push(client.record);
        }
        for record in records {
            match record.join() {
                Ok(record) => {
                    all.attempts.extend(record.attempts);
                    all.waits.extend(record.waits);
                    all.holds.extend(record.holds);
                    all.knocks.extend(record.knocks);
                    all.spends.extend(record.spends);
                    all.operated.extend(record.operated);
                    all.orders.extend(record.orders);
                    all.lines.extend(record.lines);
                    all.replaced.extend(record.replaced);
                    all.figures.extend(record.figures);
                }
                Err(_panic) => all.wrongs.push("a record was not kept".to_owned()),
            }
        }
        all
    }

    fn add(&mut self) -> Result<()> {
        let mut process = Command::new(&self.program)
            .arg(CLIENT)
            .arg(serde_json::to_string(&self.orders)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let number = self.orders.number;
        self.orders.number += 1;
        let output = process.stdout.take().ok_or("a client without output")?;
        let inside = Arc::<Mutex<Inside>>::default();
        let told = Arc::clone(&inside);
        let record = std::thread::spawn(move || record_of_client(number, output, &told));
        self.living.push(Client {
            process,
            inside,
            record,
        });
        Ok(())
    }
}

/// Waits for a client that was told to end.
fn ended(process: &mut Child, until: Instant) -> Result<()> {
    while Instant::now() < until {
        match process.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("a client ended with {status}").into()),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    process.kill()?;
    process.wait()?;
    Err("a client did not end when it was told to".into())
}

/// Reads a process's record until it ends. Its open attempts have an unknown outcome.
pub(crate) fn record(process: u32, output: impl Read) -> Record {
    record_of_client(process, output, &Mutex::default())
}

/// Does the same, and tells meanwhile what the process holds.
fn record_of_client(process: u32, output: impl Read, inside: &Mutex<Inside>) -> Record {
    let (mut open, mut record) = (HashMap::new(), Record::default());
    let (mut holds, mut knocks) = (HashMap::new(), HashMap::new());
    let (mut orders, mut lines) = (HashMap::new(), HashMap::new());
    let (mut replaced, mut operated) = (HashMap::new(), HashMap::new());
    for line in BufReader::new(output)
        .lines()
        .map_while(std::io::Result::ok)
    {
        // The last line of a killed client may be half a line.
        match serde_json::from_str(&line) {
            Ok(Line::Ask(number, attempt)) => {
                open.insert(number, *attempt);
            }
            Ok(Line::Hear(number, heard_us, heard)) => {
                if let Some(attempt) = open.remove(&number) {
                    record.attempts.push(attempt.heard(heard_us, heard));
                }
            }
            Ok(Line::Hold(number, hold)) => {
                lock(inside).note(number, hold);
                holds.insert(number, hold);
            }
            Ok(Line::Knock(number, knock)) => {
                knocks.insert(number, knock);
            }
            Ok(Line::Spend(spend)) => record.spends.push(spend),
            Ok(Line::Operator(number, call)) => {
                operated.insert(number, call);
            }
            Ok(Line::Order(number, order)) => {
                orders.insert(number, order);
            }
            Ok(Line::Waiting(line)) => {
                lines.insert(line.limiter, line);
            }
            Ok(Line::Replaced(one)) => {
                replaced.insert(one.from_us, one);
            }
            Ok(Line::Ruled(ruling)) => record.rulings.push(ruling),
            Ok(Line::Lost(leases)) => lock(inside).lost_leases = leases,
            Ok(Line::End(figures)) => record.figures.push(figures),
            Ok(Line::Late(from_us, to_us)) => record.waits.push(Wait {
                process,
                from_us,
                to_us,
            }),
            Err(_half) => {}
        }
    }
    let stops = std::mem::take(&mut lock(inside).stops);
    let stops = stops.into_iter().map(|(from_us, to_us)| Wait {
        process,
        from_us,
        to_us,
    });
    record.waits.extend(stops);
    let ended_us = now_us();
    let killed = || Outcome::Unknown(Outcome::KILLED.to_owned());
    let open = open.into_values();
    let open = open.map(|attempt| attempt.heard(ended_us, killed().into()));
    record.attempts.extend(open);
    let holds = holds.into_values();
    record
        .holds
        .extend(holds.map(|hold| hold.ends_with_its_process(ended_us)));
    record.lines.extend(lines.into_values());
    record.replaced.extend(replaced.into_values());
    record.orders.extend(orders.into_values());
    record.knocks.extend(knocks.into_values());
    record.operated.extend(operated.into_values());
    let of_orders = record.orders.iter_mut();
    let of_orders = of_orders.map(|it: &mut Order| (&mut it.heard_us, &mut it.outcome));
    let of_knocks = record.knocks.iter_mut();
    let of_knocks = of_knocks.map(|it: &mut Knock| (&mut it.heard_us, &mut it.outcome));
    let of_operators = record.operated.iter_mut();
    let of_operators =
        of_operators.map(|it: &mut OperatorCall| (&mut it.heard_us, &mut it.outcome));
    let of_callers = of_orders.chain(of_knocks).chain(of_operators);
    let unheard = of_callers.filter(|(us, _)| **us == 0);
    for (heard_us, outcome) in unheard {
        (*heard_us, *outcome) = (ended_us, killed());
    }
    record
}

impl Drop for Crew {
    fn drop(&mut self) {
        for client in &mut self.living {
            let _gone = client.process.kill();
            let _status = client.process.wait();
        }
    }
}

//! The processes that ask, seen from their parent.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use crate::Result;
use crate::attempt::{Attempt, Outcome};
use crate::client::{Line, Orders, now_us};

/// The word that makes this program a client; its orders follow.
pub const CLIENT: &str = "client";

/// All clients of a run, living and dead.
#[derive(Debug)]
pub(crate) struct Crew {
    program: PathBuf,
    orders: Orders,
    living: Vec<Client>,
    /// What those wrote down who are no more.
    dead: Vec<JoinHandle<Vec<Attempt>>>,
}

#[derive(Debug)]
struct Client {
    process: Child,
    record: JoinHandle<Vec<Attempt>>,
}

impl Crew {
    /// Starts so many clients. `orders` are the first one's.
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

    /// Kills a client in the middle of whatever it does, and starts another.
    pub(crate) fn replace_one(&mut self) -> Result<()> {
        if !self.living.is_empty() {
            let mut client = self.living.remove(0);
            client.process.kill()?;
            client.process.wait()?;
            self.dead.push(client.record);
        }
        self.add()
    }

    /// Lets all come to an end, and gives what they wrote down.
    pub(crate) fn finish(mut self) -> Result<Vec<Attempt>> {
        for client in &mut self.living {
            // They go on until their input ends.
            drop(client.process.stdin.take());
        }
        let mut attempts = Vec::new();
        for mut client in self.living.drain(..) {
            let status = client.process.wait()?;
            if !status.success() {
                return Err(format!("a client ended with {status}").into());
            }
            attempts.extend(joined(client.record)?);
        }
        for record in self.dead.drain(..) {
            attempts.extend(joined(record)?);
        }
        Ok(attempts)
    }

    fn add(&mut self) -> Result<()> {
        let mut process = Command::new(&self.program)
            .arg(CLIENT)
            .arg(serde_json::to_string(&self.orders)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        self.orders.number += 1;
        let output = process.stdout.take().ok_or("a client without output")?;
        let record = std::thread::spawn(move || record(output));
        self.living.push(Client { process, record });
        Ok(())
    }
}

fn joined(record: JoinHandle<Vec<Attempt>>) -> Result<Vec<Attempt>> {
    record
        .join()
        .map_err(|_panic| "a record was not kept".into())
}

/// Reads what a client writes until it ends. What it has asked by then and not heard of, nobody knows.
fn record(output: impl Read) -> Vec<Attempt> {
    let (mut open, mut attempts) = (HashMap::new(), Vec::new());
    for line in BufReader::new(output)
        .lines()
        .map_while(std::io::Result::ok)
    {
        // The last line of one that was killed may be half a line.
        match serde_json::from_str(&line) {
            Ok(Line::Ask(number, attempt)) => {
                open.insert(number, attempt);
            }
            Ok(Line::Hear(number, heard_us, heard)) => {
                if let Some(attempt) = open.remove(&number) {
                    attempts.push(attempt.heard(heard_us, heard));
                }
            }
            Err(_half) => {}
        }
    }
    let ended_us = now_us();
    let killed = || Outcome::Unknown(Outcome::KILLED.to_owned());
    let open = open.into_values();
    attempts.extend(open.map(|attempt| attempt.heard(ended_us, killed().into())));
    attempts
}

impl Drop for Crew {
    fn drop(&mut self) {
        for client in &mut self.living {
            let _gone = client.process.kill();
            let _status = client.process.wait();
        }
    }
}

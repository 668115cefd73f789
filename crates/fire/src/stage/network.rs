//! Faults of the network between clients and servers.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use tollgate_testkit::Weather;

use super::WHILE;
use crate::Result;
use crate::fault::Fault;

/// The state of the network under a fault, and the length of the fault.
pub(super) fn weather(fault: Fault) -> Option<(Weather, Duration)> {
    let fine = Weather::default();
    Some(match fault {
        Fault::Latency(delay) => (Weather { delay, ..fine }, WHILE + delay * 2),
        Fault::Narrow(bytes) => {
            let bytes_per_second = Some(bytes);
            let narrow = Weather {
                bytes_per_second,
                ..fine
            };
            (narrow, WHILE)
        }
        Fault::Lossy(loss_percent) => (
            Weather {
                loss_percent,
                ..fine
            },
            WHILE * 3,
        ),
        Fault::Partition(time) => {
            let is_parted = true;
            (Weather { is_parted, ..fine }, time)
        }
        Fault::Deaf(time) => {
            let is_deaf = true;
            (Weather { is_deaf, ..fine }, time)
        }
        _ => return None,
    })
}

/// Asks for some twenty megabytes, and reads none of it while the connection is kept.
pub(super) fn ask_in_vain(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_write_timeout(Some(WHILE))?;
    stream.write_all(&b"CONFIG GET *\r\n".repeat(2_000))?;
    Ok(stream)
}

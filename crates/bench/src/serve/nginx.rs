//! nginx in one process, with or without `limit_conn`.

use std::io::{self, Read};

use tollgate_testkit::Nginx;

use super::AT_ONCE;
use crate::Result;

/// `limit_conn` acts before a module that makes the content, and after `return`: so the content is the GIF that nginx has in
/// memory.
pub(super) fn run(is_limited: bool) -> Result<()> {
    let limit = if is_limited {
        format!("limit_conn at_once {AT_ONCE};")
    } else {
        String::new()
    };
    let nginx = Nginx::start(
        "keepalive_requests 1000000000; limit_conn_zone $remote_port zone=at_once:10m;",
        &format!("location / {{ {limit} empty_gif; }}"),
    );
    println!("{} {}", nginx.address().port(), nginx.process_id());
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

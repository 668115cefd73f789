//! The arguments of the admin, and its token.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tollgate_server::{Admin, AdminToken};

use crate::failure::Failure;

/// The variable with the token. Arguments stand in the list of processes, and variables do not.
const TOKEN: &str = "TOLLGATE_ADMIN_TOKEN";

/// The arguments of the admin.
#[derive(Debug, Args)]
pub(super) struct AdminArguments {
    /// The address of the admin: a page and an API, by which operators see and steer. Clients that reach it and have the token
    /// can do both. The token has 16 bytes or more, and stands in TOLLGATE_ADMIN_TOKEN or in the file of --admin-token-file.
    #[arg(id = "admin", long, value_name = "ADDRESS")]
    address: Option<SocketAddr>,
    /// The file whose first line is the token of the admin.
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_token_file: Option<PathBuf>,
}

impl AdminArguments {
    /// The address and the admin, if there is to be one.
    pub(super) fn read(&self) -> Result<Option<(SocketAddr, Admin)>, Failure> {
        let Some(address) = self.address else {
            return Ok(None);
        };
        let (place, token) = match &self.admin_token_file {
            Some(path) => {
                let place = path.display().to_string();
                let text = fs::read_to_string(path)
                    .map_err(|error| Failure::invalid(format_args!("{place}: {error}")))?;
                (place, text.lines().next().unwrap_or_default().to_owned())
            }
            None => match std::env::var(TOKEN) {
                Ok(token) => (TOKEN.to_owned(), token),
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(Failure::invalid(format_args!("{TOKEN}: it is not a text")));
                }
                Err(std::env::VarError::NotPresent) => {
                    return Err(Failure::usage(format_args!(
                        "--admin needs a token: name a file by --admin-token-file, or set {TOKEN}; `openssl rand -hex 32` makes one"
                    )));
                }
            },
        };
        let token = AdminToken::new(token.trim())
            .map_err(|error| Failure::invalid(format_args!("{place}: {error}")))?;
        Ok(Some((address, Admin::new(token))))
    }
}

//! nginx, alone and in one process.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::counts;
use crate::web_server::WebServer;

const INSTALL: &str =
    "there is no `nginx`: `apt-get install nginx-light`, or another package that has it";

/// The module that Debian's package puts here.
const LUA: &str = "/usr/lib/nginx/modules/ngx_http_lua_module.so";

/// An nginx of its own, on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Nginx(WebServer);

impl Nginx {
    /// Starts nginx with these directives in its `http` block and these in its `server` block, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If there is no nginx to start. The message says what to install.
    #[must_use]
    pub fn start(http: &str, server: &str) -> Self {
        Self(WebServer::start(INSTALL, |folder, address| {
            let file = folder.join("nginx.conf");
            fs::write(&file, configuration(folder, address, http, server)).expect("a file");
            let mut command = Command::new("nginx");
            command.arg("-p").arg(folder).arg("-c").arg(&file);
            command
        }))
    }

    /// Starts nginx with a whole configuration, in which these words are others, with its Lua module and with as many workers as it
    /// says; and waits until it listens. The configuration listens on `{listen}`.
    ///
    /// # Panics
    ///
    /// If there is no nginx to start, or no Lua in it: the message says what to install. If nginx refuses the configuration: the
    /// message has its words.
    #[must_use]
    pub fn start_with_lua(configuration: &str) -> Self {
        Self::start_lua(INSTALL, configuration, "daemon off", |_| {
            Command::new("nginx")
        })
    }

    /// Starts such an nginx in one process, whose instructions are counted, by valgrind's callgrind.
    ///
    /// # Panics
    ///
    /// As [`start_with_lua`](Self::start_with_lua), and if there is no valgrind.
    #[must_use]
    pub fn start_with_lua_counted(configuration: &str) -> Self {
        const VALGRIND: &str = "there is no `valgrind`: `apt-get install valgrind`";
        let one = "daemon off; master_process off";
        Self::start_lua(VALGRIND, configuration, one, |folder| {
            counts::counted("nginx", folder)
        })
    }

    fn start_lua(
        install: &str,
        configuration: &str,
        processes: &str,
        program: impl Fn(&Path) -> Command,
    ) -> Self {
        assert!(
            Path::new(LUA).exists(),
            "there is no {LUA}: `apt-get install libnginx-mod-http-lua lua-nginx-redis lua-cjson`"
        );
        Self(WebServer::start(install, |folder, address| {
            let file = folder.join("nginx.conf");
            let text = configuration.replace("{listen}", &address.to_string());
            let own = folders(folder);
            let text = text.replacen("http {", &format!("http {{\n{own}"), 1);
            fs::write(&file, text).expect("a file");
            // Workers of another user would not reach the folder.
            let mut command = program(folder);
            let folder = folder.display();
            let main = format!(
                "{processes}; user root; pid {folder}/pid; error_log {folder}/error.log info;"
            );
            command
                .arg("-p")
                .arg(format!("{folder}"))
                .arg("-c")
                .arg(&file)
                .args(["-g", &main]);
            command
        }))
    }

    /// The number of its instructions since the last call of this method, or since the start.
    ///
    /// # Panics
    ///
    /// If they are not counted.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        counts::since_the_last(self.process_id(), self.folder())
    }

    /// The lines of its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.0.folder().join("error.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The folder that only this nginx uses.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.folder()
    }

    /// The address on which nginx listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The number of its process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.0.process_id()
    }
}

fn configuration(folder: &Path, address: SocketAddr, http: &str, server: &str) -> String {
    let own = folders(folder);
    let folder = folder.display();
    format!(
        "daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
{own}  {http}
  server {{
    listen {address};
    {server}
  }}
}}
"
    )
}

/// The directives for files that nginx makes by itself.
fn folders(folder: &Path) -> String {
    let names = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folder = folder.display();
    let paths = names.map(|name| format!("  {name}_temp_path {folder}/{name};\n"));
    paths.concat()
}

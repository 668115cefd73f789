//! Serves the HTTP examples, and prints the commands to try.

#![allow(clippy::print_stdout, reason = "it talks to whoever started it")]

use std::env;
use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;

/// Serves `app` on 127.0.0.1:3000, or on the address in `ADDR`, with the addresses of its callers. Prints the commands to try, in
/// which `URL` stands for the server's URL, and `HOST` for the URL without `http://`.
///
/// # Errors
///
/// If it cannot listen there.
pub async fn serve(app: Router, about: &str, tries: &[&str]) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await.map_err(|error| {
        format!("cannot listen on {address}: {error}; choose another with ADDR")
    })?;
    let host = listener.local_addr()?.to_string();
    let url = format!("http://{host}");
    println!("listening on {url}; {about}\n");
    for command in tries {
        println!("  {}", command.replace("URL", &url).replace("HOST", &host));
    }
    // With the connection's address, so that each caller has a budget of its own.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

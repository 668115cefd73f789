//! The server for gateways, asked over real sockets: by clients of each protocol, and by a real Envoy, nginx and Caddy.

mod admin;
mod admin_page;
mod common;
mod envoy;
mod forward_auth;
mod odd_values;
mod service;
mod service_errors;
mod service_reload;
mod slow_clients;
mod tls;
mod tls_files;

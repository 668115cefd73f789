//! The files of the gateway process and of its Envoy, for the policies of a population.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use crate::attempt::Door;
use crate::flaw::Flaw;
use crate::population::{CALLER, COST, Population};
use crate::ruling::QUESTION;

/// The file of the gateway process. One of another version has a policy more, and changes nothing else.
pub(crate) fn of_gateway(population: &Population, version: usize) -> String {
    let mut file = format!("# version {version}\n");
    for policy in population.asked_by(Door::Envoy) {
        let name = Population::name(policy);
        add(&mut file, &name, &population.quotas()[policy].to_string());
    }
    add(&mut file, QUESTION, "1000000/s");
    if version % 2 == 1 {
        add(&mut file, "another", "1/s");
    }
    file
}

fn add(file: &mut String, name: &str, quota: &str) {
    // Writing to a text never fails.
    let _written = write!(
        file,
        "
[[policies]]
name = \"{name}\"
quotas = \"{quota}\"
on_demand = true
on_failure = \"deny\"

[[envoy]]
domain = \"fire\"
descriptor = [{{ key = \"{name}\" }}]
policy = \"{name}\"
"
    );
}

/// The configuration of an Envoy that listens on a port and asks the gateway process at an address. The service behind it is
/// Envoy itself, on a socket at `service`.
pub(crate) fn of_envoy(
    population: &Population,
    port: u16,
    gateway: SocketAddr,
    service: &Path,
    flaw: Option<Flaw>,
) -> String {
    let mut limits = String::new();
    for policy in population.asked_by(Door::Envoy) {
        let name = Population::name(policy);
        let header = format!("{CALLER}{policy}");
        limits += &limit(
            &header,
            &name,
            &format!("format: \"%REQ({COST}{policy})%\""),
        );
    }
    limits += &limit(QUESTION, QUESTION, "number: 0");
    let timeout = match flaw {
        // Nothing else ends a question that is not answered.
        Some(Flaw::NeverAnswers) => "0s".to_owned(),
        _ => format!("{}s", Door::ENVOY_TIMEOUT.as_secs_f64()),
    };
    let service = service.display();
    format!(
        r#"static_resources:
  listeners:
  - name: front
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          route_config:
            virtual_hosts:
            - name: fire
              domains: ["*"]
              routes:
              - match: {{ prefix: / }}
                route: {{ cluster: service }}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
{limits}          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: fire
              timeout: {timeout}
              failure_mode_deny: true
              rate_limit_service:
                transport_api_version: V3
                grpc_service:
                  envoy_grpc: {{ cluster_name: tollgate }}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  - name: service
    address: {{ pipe: {{ path: "{service}" }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: service
          route_config:
            virtual_hosts:
            - name: service
              domains: ["*"]
              routes:
              - match: {{ prefix: / }}
                direct_response: {{ status: 200, body: {{ inline_string: passed }} }}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: service
    load_assignment:
      cluster_name: service
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ pipe: {{ path: "{service}" }} }} }}
  - name: tollgate
    connect_timeout: 0.25s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: tollgate
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {} }} }} }}
"#,
        gateway.port()
    )
}

/// A descriptor of the value of a header, which requests without the header do not have.
fn limit(header: &str, key: &str, hits: &str) -> String {
    format!(
        "                    - actions:
                      - request_headers: {{ header_name: {header}, descriptor_key: {key} }}
                      hits_addend: {{ {hits} }}
"
    )
}

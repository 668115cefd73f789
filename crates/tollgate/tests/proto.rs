//! Limits that stand in the contract of a gRPC service.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]
#![cfg(feature = "proto")]

use std::fs;

use tollgate::proto::{Contract, INCLUDE, ProtoError};
use tollgate::{Limiter, Policy, Quota};

/// The contract of a service with these options, as a build would write it.
fn contract(service_options: &str, place_options: &str) -> Contract {
    let folder = tempfile::tempdir().unwrap();
    let shop = folder.path().join("shop.proto");
    let text = format!(
        r#"
        syntax = "proto3";
        package shop.v1;
        import "tollgate/v1/limit.proto";
        message Order {{}}
        service Orders {{
          {service_options}
          rpc Place(Order) returns (Order) {{ {place_options} }}
          rpc List(Order) returns (Order);
        }}
        "#
    );
    fs::write(&shop, text).unwrap();
    let includes = [folder.path(), INCLUDE.as_ref()];
    let mut compiler = protox::Compiler::new(includes).unwrap();
    compiler.include_imports(true).open_file(&shop).unwrap();
    Contract::read(&compiler.encode_file_descriptor_set()).unwrap()
}

fn limit(fields: &str) -> String {
    format!("option (tollgate.v1.limit) = {{ {fields} }};")
}

#[tokio::test]
async fn the_options_of_methods_and_services_are_policies() {
    let contract = contract(
        r#"option (tollgate.v1.service_limit) = { quota: "100/s" name: "orders" };"#,
        &limit(r#"quota: "10/h" burst: 4 cost: 2"#),
    );

    let policies = contract.policies().unwrap();

    let names: Vec<_> = policies.iter().map(Policy::name).collect();
    assert_eq!(names, ["orders", "shop.v1.orders/place"]);
    let limiter = Limiter::builder().policies(policies).build().unwrap();
    contract.check(&limiter).unwrap();
    // A burst of 4 at a cost of 2.
    for allowed in [true, true, false] {
        let checked = limiter.check("shop.v1.orders/place", "alice").await;
        assert_eq!(checked.unwrap().is_allowed(), allowed);
    }
}

#[test]
fn a_contract_without_limits_has_no_policies() {
    assert!(contract("", "").policies().unwrap().is_empty());
}

#[test]
fn a_wrong_option_names_its_method() {
    let cases = [
        ("", "shop.v1.Orders/Place: the limit is wrong: "),
        (r#"quota: "ten""#, "\"ten\""),
        (r#"quota: "0/s""#, "shop.v1.Orders/Place: "),
        (
            r#"quota: "1/s fixed-window" burst: 9"#,
            "shop.v1.Orders/Place: ",
        ),
        (r#"quota: "1/s" name: "Not A Name""#, "is no name"),
    ];
    for (fields, expected) in cases {
        let error = contract("", &limit(fields)).policies().unwrap_err();
        assert!(matches!(error, ProtoError::Option { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{fields}: {error}");
    }
}

#[test]
fn a_policy_for_a_method_that_does_not_exist_is_found() {
    let contract = contract("", "");
    let check = |methods: &str| {
        let policy = Policy::new("orders", Quota::per_second(1)).grpc(methods);
        contract.check(&Limiter::from(policy))
    };

    for methods in ["shop.v1.Orders/Place", "shop.v1.Orders/*", "shop.*"] {
        check(methods).unwrap();
    }
    for methods in ["shop.v1.Orders/Buy", "shop.v1.Order/*", "shop.v2.*"] {
        let error = check(methods).unwrap_err().to_string();
        assert!(
            error.starts_with("policy \"orders\": there is no method"),
            "{error}"
        );
    }
}

#[test]
fn what_is_no_descriptor_set_is_refused() {
    let error = Contract::read(b"no descriptors").unwrap_err();
    assert!(matches!(error, ProtoError::Descriptors(_)), "{error:?}");
}

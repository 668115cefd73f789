//! Requests that readers may take for others.

use crate::nginx::client::Ask;
use crate::nginx::served::BODY_LIMIT;

/// Targets in every form.
pub(crate) fn paths() -> Vec<Ask> {
    let long = "x".repeat(200);
    let paths = [
        "/items/7",
        "/items/007",
        "/items/%37",
        "/items/+7",
        "/items/07.00",
        "/items/7.",
        "/items/.5",
        "/items/-0.50",
        "/items/70e-1",
        "/items/1E21",
        "/items/1.25e-9",
        "/items/0.1000000000000000055",
        "/items/123456789.123456789123456789",
        "/items/2.2250738585072014e-308",
        "/items/0e9999",
        "/items/12e4567",
        "/items/1e-999",
        "/items/1.2.3",
        "/items/e5",
        "/items/nan",
        "/items/0:0:0:0:0:0:0:1",
        "/items/2001:DB8::00aF",
        "/items/1:0:0:2:0:0:0:3",
        "/items/::ffff:c0a8:1",
        "/items/::1%25eth0",
        "/items/127.0.0.1:080",
        "/items/127.0.0.1:0",
        "/items/127.0.0.1:65536",
        "/items/%5B0::1%5D:00080",
        "/items/%5B::ffff:1.2.3.4%5D:1",
        "/items/a:80",
        "/items/-0",
        "/items/abc",
        "/area-a/x/y",
        "/area-/a/x",
        "/area-//x",
        "/abc/areas/7",
        "//areas/7",
        "//abc/areas/7",
        "/abc//areas/7",
        "//areas/areas/7",
        "/abc/areas/none",
        "//areas/none",
        "/abc/areas//none/",
        "/items/%61bc",
        "/items/ABC",
        "/Items/7",
        "/items/7/",
        "/items/",
        "/items",
        "/items/a%20b",
        "/items/100%",
        "/items/%zz",
        "/items/%",
        "/items/caf\u{e9}",
        "/items/caf%C3%A9",
        "/items/%ff",
        "/items/free",
        "/items/%66ree",
        "/items/free/",
        "/items/7?x=/../",
        "/items/7#x",
        "/items/7?#x",
        "/items/67E5504410b1426f9247bb680e5fe0c8",
        "/items/507F1F77BCF86CD799439011",
        "/items/0X507f1f77bcf86cd799439011",
        "/items/0xDEADBEEF",
        "/items/01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "/items/01ARZ3NDEKTSV4RRFFQ69G5FAI",
        "/items/%7B67e55044-10b1-426f-9247-bb680e5fe0c8%7D",
        "/items/7/none",
        "/caf\u{e9}/1",
        "/caf%C3%A9/1",
        "/caf%c3%a9/1",
        "/a-x/end",
        "/a-/end",
        "/a-%78/end",
        "/a-x/end/",
        "/files/a/b",
        "/files/a%20/b/",
        "/files/",
        "/files",
        "/files/open/x",
        "/files/%6fpen/x",
        "/files/open/",
        "/",
        "/nowhere",
        "/it%65ms/7",
        "/items/{id}",
        "/items/a,b",
        "/items/a:b@c",
        "/items/\"<>`|^",
        "http://other/items/7",
        "http://other",
        "/items/7?",
        "/items/%25%37",
        "/items/..7",
        "/items/7.",
    ];
    let mut asks: Vec<_> = paths
        .iter()
        .map(|path| Ask::new(format!("GET {path}")))
        .collect();
    asks.push(Ask::new(format!("GET /items/{long}")));
    asks.push(Ask::new(format!("GET /items/{}", "%ff".repeat(60))));
    asks.push(Ask::new(b"GET /items/\xff".as_slice()));
    asks
}

/// Parameters of the query.
pub(crate) fn queries() -> Vec<Ask> {
    let queries = [
        "",
        "user=abc",
        "user=zzz",
        "user=%61bc",
        "%75ser=abc",
        "user=zzz&user=abc",
        "user=abc&user=abc",
        "user=",
        "user=&user=abc",
        "user",
        "user=a+c",
        "user=a%20c",
        "User=abc",
        "user=007",
        "user=0049171",
        "user=7%20",
        "user=%097.0",
        "user=%20abc",
        "user=49172",
        "user=%2B7",
        "user=+7",
        "a=1&&user=abc&",
        "user=a=b",
        "user=abc#user=zzz",
        "user=%ff",
        "user=%fe",
        "user=a%E2%82b",
        "user=%F0%9F%98%80",
        "user=%zz",
        "user=caf\u{e9}",
        "user=caf%C3%A9",
        "use%72=%",
        "user[]=abc",
        "user=abc;user=zzz",
        "us%2bser=1",
        "user=67E55044-10B1-426F-9247-BB680E5FE0C8",
        "user=00000000000000000000000000000007",
        "+user=abc",
        "user=%00",
        "x=1;user=abc",
        "user=abc;x",
        "user=a%3Bb",
        "x=1;2&user=abc",
        "user=abc&%20user=zzz",
        "user=abc&us%65R=zzz",
        "user=abc&%0Auser=zzz",
    ];
    let mut asks: Vec<_> = queries
        .iter()
        .map(|query| Ask::new(format!("GET /query?{query}")))
        .collect();
    asks.push(Ask::new(format!("GET /query?user={}", "y".repeat(300))));
    asks.push(Ask::new(format!(
        "GET /query?{}user=abc",
        "a=b&".repeat(300)
    )));
    asks
}

/// Header fields, cookies, tokens, methods and addresses.
pub(crate) fn fields() -> Vec<Ask> {
    let cookies: &[&[&[u8]]] = &[
        &[],
        &[b"sid=abc"],
        &[b"sid=%61bc"],
        &[b"%73id=abc"],
        &[b"sid=zzz; sid=abc"],
        &[b"sid=abc;sid=abc"],
        &[b"sid=zzz", b"sid=abc"],
        &[b"sid=\"abc\""],
        &[b"sid= abc "],
        &[b"sid=%20abc"],
        &[b"other=1;sid=abc;more"],
        &[b"sid="],
        &[b"sid=\"\""],
        &[b"sid=\""],
        &[b"sid=%ff"],
        &[b"sid=abc; other=\xff"],
        &[b"sid=\xff"],
        &[b"sid=\xff", b"sid=abc"],
        &[b"Sid=abc"],
        &[b"sid"],
        &[b"sid==abc"],
        &[b"sid=a=b"],
        &[b"sid=%22abc%22"],
        &[b" sid =abc"],
        &[b"sid=a b"],
        &[b"sid = abc"],
        &[b"sid = a b"],
        &[b"sid=a,b"],
        &[b"x=1 sid=abc"],
        &[b"x=1 sid = abc; sid=abc"],
        &[b"x=1,sid=abc"],
        &[b"x=1\tsid=abc"],
        &[b"x=1, 2; sid=abc"],
        &[b"sid=abc; SID=zzz"],
        &[b"sid=abc; s%69d=abc"],
        &[b";;sid=abc;;"],
        &[b"sid=b=="],
        &[b"sid=b%3D="],
        &[b"other=\"x; sid=abc; more=\""],
        &[b"other=\"x", b"sid=abc", b"more=\""],
    ];
    let cookies = cookies.iter().map(|lines| {
        let ask = Ask::new("GET /cookie");
        lines
            .iter()
            .fold(ask, |ask, line| ask.field("cookie", line))
    });
    let values: &[&[u8]] = &[
        b"",
        b"abc",
        b" abc",
        b"abc\t ",
        b"blocked",
        b" blocked",
        b"Blocked",
        b"\xff\xfe",
        b"a b",
        b"all",
        b"none",
        b"127.0.0.1",
        b"=x",
        b"{0}:x",
        b"(a,b)",
        b"%41",
        b"*",
    ];
    let values = values
        .iter()
        .map(|value| Ask::new("GET /header").field("x-api-key", value));
    let long = Ask::new("GET /header").field("X-API-KEY", "k".repeat(500));
    let bearers: &[&[&str]] = &[
        &[],
        &["Bearer abc"],
        &["bearer  abc "],
        &["BEARER\tabc"],
        &["Bearer"],
        &["Bearer "],
        &["Bearerabc"],
        &["Basic abc"],
        &["Bearer abc", "Bearer abc"],
        &["Bearer abc", "Bearer zzz"],
        &["Basic abc", "Bearer abc"],
        &["Bearer a b"],
    ];
    let methods = ["GET", "HEAD", "POST", "OPTIONS", "QUERY", "PROPFIND"];
    let bearers = bearers
        .iter()
        .zip(methods.iter().cycle())
        .map(|(lines, method)| {
            let ask = Ask::new(format!("{method} /bearer"));
            lines
                .iter()
                .fold(ask, |ask, line| ask.field("authorization", line))
        });
    let users: &[&[&str]] = &[
        &[],
        &["Basic YWxpY2U6cGFzcw=="],
        &["basic  YWxpY2U6cGFzcw="],
        &["BASIC YWxpY2U6cGFzcw"],
        &["Basic YWxpY2U6cGFzcx=="],
        &["Basic YWxpY2U6cGFzcw==="],
        &["Basic YWxpY2U6cGFzcw==", "Basic Ym9iOg=="],
        &["Basic YWxpY2U6cGFzcw==", "Basic YWxpY2U6cGFzcw=="],
        &["Basic YWxpY2U6cGFzcw==", "Basic YWxpY2U6b3RoZXI="],
        &["Basic Ym9iOmE6Yg=="],
        &["Basic Ym9i"],
        &["Basic OnBhc3M="],
        &["Basic /zphYmM="],
        &["Basic _zphYmM="],
        &["Basic Ym9i OmE="],
        &["Basic Ym9iO"],
        &["Basic =="],
        &["Basic"],
        &["Basic Ym9=iOg"],
        &["Bearer YWxpY2U6cGFzcw=="],
    ];
    let users = users.iter().map(|lines| {
        let ask = Ask::new("GET /basic");
        { lines.iter() }.fold(ask, |ask, line| ask.field("authorization", line))
    });
    let addresses = [1, 7, 8, 11, 12]
        .into_iter()
        .map(|last| Ask::new("GET /address").from(last));
    let methods = methods
        .iter()
        .map(|method| Ask::new(format!("{method} /address")));
    cookies
        .chain(values)
        .chain([long])
        .chain(bearers)
        .chain(users)
        .chain(addresses)
        .chain(methods)
        .collect()
}

/// Bodies of every kind, whole and in pieces.
pub(crate) fn bodies() -> Vec<Ask> {
    const FORM: &str = "application/x-www-form-urlencoded";
    const JSON: &str = "application/json";
    let kinds = [
        FORM,
        "application/x-www-form-urlencoded; charset=utf-8",
        "application/x-www-form-urlencodedx",
        "Application/X-WWW-Form-Urlencoded",
        "application/x-www-form-urlencoded,x",
        JSON,
        "application/json;charset=utf-8",
        "application/x+json",
        "Application/JSON",
        "text/json",
        "text/plain",
        "multipart/form-data; boundary=x",
        "",
        " application/json ",
        "application/+json",
        "image/svg+json",
    ];
    let forms = [
        "user=abc",
        "user=%61bc",
        "%75ser=abc",
        "user=zzz&user=abc",
        "user=",
        "User=abc",
        "user=abc;user=zzz",
        "other=1&user=abc",
        "user=a+c",
        "user",
        "{\"user\":1}",
        "",
    ];
    let documents = [
        r#"{"user":"abc"}"#,
        r#"{"user":"\u0061bc"}"#,
        r#"{"\u0075ser":"abc"}"#,
        r#"{"user":"zzz","user":"abc"}"#,
        r#"{"user":"a","user":"a"}"#,
        r#"{"user":"abc","user":null}"#,
        r#"{"user":null,"user":"abc"}"#,
        r#"{"user":{},"user":"abc"}"#,
        r#"{"user":7}"#,
        r#"{"user":"7"}"#,
        r#"{"user":"007"}"#,
        r#"{"user":7.0}"#,
        r#"{"user":7e0}"#,
        r#"{"user":7.5}"#,
        r#"{"user":-0}"#,
        r#"{"user":""}"#,
        r#"{"user":null}"#,
        r#"{"user":true}"#,
        r#"{"user":[]}"#,
        r#" { "user" : "abc" , "a" : [ 1 , {} ] } "#,
        "[]",
        r#"[{"user":"abc"}]"#,
        r#"["abc"]"#,
        "7",
        "null",
        "",
        r#"{"user":"abc""#,
        r#"{"user":"abc"}x"#,
        r#"{"user":'abc'}"#,
        r#"{user:"abc"}"#,
        r#"{"user":"abc",}"#,
        r#"{"user":01}"#,
        r#"{"user":1e999}"#,
        r#"{"user":9007199254740991}"#,
        r#"{"user":9007199254740992}"#,
        r#"{"user":9007199254740993}"#,
        r#"{"user":[[1],{"a":[2]}]}"#,
        r#"{"user":"7.0"}"#,
        r#"{"user":18446744073709551615}"#,
        r#"{"user":18446744073709551616}"#,
        r#"{"user":-9223372036854775808}"#,
        r#"{"user":"\ud83d\ude00"}"#,
        r#"{"user":"\ud83d"}"#,
        r#"{"user":"a\nb"}"#,
        "{\"user\":\"a\nb\"}",
        r#"{"user":"\x"}"#,
        r#"{"user":"abc","b":"\ud800"}"#,
        r#"{"User":"abc"}"#,
        r#"{"user":"abc","USER":"zzz"}"#,
        r#"{"uSer":"abc","user":"abc"}"#,
        r#"{"u\u017fer":"abc","user":"abc"}"#,
        r#"{"user":"abc","users":"zzz"}"#,
        r#"{"a":{"user":"abc"}}"#,
        "\u{feff}{\"user\":\"abc\"}",
        r#"{"user":"abc"} "#,
        r#"{"user":+1}"#,
        r#"{"user":.5}"#,
        r#"{"user":1.}"#,
        r#"{"user":"a\u0000b"}"#,
        r#"{"a":[0,{"user":"x"}]}"#,
        r#"{"user":nul}"#,
        r#"{"user":"tr\u00e9s"}"#,
    ];
    let nested = [
        r#"{"a":[0,{"user":"x"}]}"#,
        r#"{"a":{"1":{"user":"x"}}}"#,
        r#"{"a":[0,[{"user":"x"}]]}"#,
        r#"{"a":[0]}"#,
        r#"{"a":[0,{"user":"x"}],"a":[0,{"user":"x"}]}"#,
        r#"{"a":[0,{"user":"x"}],"a":[0,{"user":"y"}]}"#,
        r#"{"a":[0,{"user":"x"},{"user":"y"}]}"#,
        r#"[[0,{"user":"x"}]]"#,
        r#"{"a":[0,7]}"#,
        r#"{"A":[0,{"user":"x"}]}"#,
        r#"{"a":[0,{"user":"x"}],"A":7}"#,
        r#"{"a":[0,{"User":"x","user":"x"}]}"#,
    ];
    let deep = format!(
        "{{\"user\":\"abc\",\"x\":{}1{}}}",
        "[".repeat(120),
        "]".repeat(120)
    );
    let too_deep = format!(
        "{{\"user\":\"abc\",\"x\":{}1{}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    let pad = |bytes: usize| format!("{{\"x\":\"{}\",\"user\":\"abc\"}}", "p".repeat(bytes - 21));
    let sizes = [BODY_LIMIT - 1, BODY_LIMIT, BODY_LIMIT + 1, 3 * BODY_LIMIT];

    let mut asks = Vec::new();
    for kind in kinds {
        for (path, body) in [
            ("/form", forms[0]),
            ("/json", documents[0]),
            ("/form", ""),
            ("/json", ""),
        ] {
            asks.push(Ask::new(format!("POST {path}")).body(kind, body));
            asks.push(Ask::new(format!("POST {path}")).chunked(kind, &[body]));
        }
    }
    asks.retain(|ask| !format!("{ask:?}").contains("0\\r\\n\\r\\n\\r\\n0"));
    asks.extend(
        forms
            .iter()
            .map(|body| Ask::new("POST /form").body(FORM, body)),
    );
    asks.extend(
        documents
            .iter()
            .map(|body| Ask::new("POST /json").body(JSON, body)),
    );
    asks.extend(
        documents
            .iter()
            .map(|body| Ask::new("POST /json").body(FORM, body)),
    );
    asks.extend(
        nested
            .iter()
            .map(|body| Ask::new("POST /nested").body(JSON, body)),
    );
    asks.extend([&deep, &too_deep].map(|body| Ask::new("POST /json").body(JSON, body)));
    for size in sizes {
        assert_eq!(pad(size).len(), size);
        asks.push(Ask::new("POST /json").body(JSON, pad(size)));
        asks.push(Ask::new("POST /json").chunked(JSON, &[&pad(size)]));
    }
    asks.push(Ask::new("POST /json").body(JSON, b"{\"user\":\"\xff\"}"));
    asks.push(Ask::new("POST /json").body(JSON, b"{\"user\":\"abc\",\"b\":\"\xff\"}"));
    asks.push(Ask::new("POST /form").body(FORM, b"user=\xff\xfe"));
    asks.push(Ask::new("POST /form").chunked(FORM, &["us", "er=a", "bc"]));
    asks.push(Ask::new("POST /json").chunked(JSON, &["{\"user\":", "\"abc\"}"]));
    asks.push(Ask::new("GET /form?user=abc"));
    asks.push(Ask::new("GET /form?user=abc").body(FORM, "user=zzz"));
    asks.push(Ask::new("GET /form?user=abc").body(FORM, "user=abc"));
    asks.push(Ask::new("GET /form?user=").body(FORM, "user=abc"));
    asks.push(Ask::new("GET /form").body(FORM, "user=abc"));
    asks.push(Ask::new("HEAD /form?user=abc"));
    asks.push(Ask::new("POST /form?user=abc"));
    asks.push(
        Ask::new("POST /json")
            .body(JSON, documents[0])
            .field("content-type", JSON),
    );
    asks
}

/// nginx answers these itself, since it or the services behind may read them in several ways.
pub(crate) fn refused_by_nginx() -> Vec<Ask> {
    let paths = [
        "//items/7",
        "/items//7",
        "/./items/7",
        "/x/../items/7",
        "/items/%2e%2e/7",
        "/items/.",
        "/items/7/..",
        "/items/a%2Fb",
        "/items/a%2fb",
        "/items/a%5cb",
        "/items/a\\b",
        "/items/7;x",
        "/items/7%3Bx",
        "/items/7%00",
        "/files/a//b",
        "/items/7/.%2E",
        "/items/7#x",
        "/#/items/7",
        "/query?x#&user=bob",
    ];
    let mut asks: Vec<_> = paths
        .iter()
        .map(|path| Ask::new(format!("GET {path}")))
        .collect();
    let doubled = Ask::new("GET /header").field("x-api-key", "a");
    asks.extend([
        doubled.clone().field("x-api-key", "b"),
        doubled.clone().field("X-Api-Key", "a"),
    ]);
    asks.push(
        Ask::new("GET /header")
            .field("x-api-key", "")
            .field("x-api-key", "b"),
    );
    asks.push(Ask::new("get /header"));
    asks.push(Ask::new("GET items/7"));
    asks.push(Ask::new("GET /items/7").field("content-length", "x"));
    asks
}

// Package caddykeyway is for Caddy in front of the doors of a cluster (worker --public). Its module
// http.reverse_proxy.upstreams.keyway sends each request to the door of the worker that owns the request's key.
// docs/balancers.md says how to build it, and deploy/balancers/Caddyfile how to configure it.
//
// Only the doors decide: each finds the key for itself, and sends a request that came to another door than its owner's on to
// the owner. So Caddy's view of the cluster, and the keys that it finds, may be wrong or old, at the cost of a hop.
//
// Files: upstreams.go chooses doors, member.go joins the cluster, caddyfile.go reads the Caddyfile.
package caddykeyway

// Package openapitest validates what the admin address answers against its OpenAPI
// description. It is a module of its own, so that the library for that is in nobody's
// requirements.
package openapitest

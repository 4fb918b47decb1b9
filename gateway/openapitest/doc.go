// Package openapitest validates what the admin address and the lock service answer against their OpenAPI
// descriptions. It is a module of its own, so that the library for that is in nobody's
// requirements.
package openapitest

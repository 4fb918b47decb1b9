// Package browsertest opens the live page of real routers and workers in a browser.
package browsertest

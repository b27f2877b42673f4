// The natural calls of a client that oapi-codegen made: two pages, a refusal, and /me.
package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"

	"client/api"
)

func must[Value any](value Value, err error) Value {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	origin := os.Getenv("ORIGIN")
	token := api.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
		return nil
	})
	gateway := must(api.NewClientWithResponses(origin+"/api", token))
	said := []any{}
	for page := 1; page <= 2; page++ {
		answer := must(gateway.ListAccountsWithResponse(ctx, &api.ListAccountsParams{Page: &page}))
		said = append(said, len((*answer.JSON200).([]any)))
	}
	refused := must(gateway.ListApiKeysWithResponse(ctx, &api.ListApiKeysParams{}))
	switch problem := must(refused.ApplicationproblemJSON403.ValueByDiscriminator()).(type) {
	case api.CallerForbidden:
		said = append(said, problem.Code)
	}
	// The generator leaves out the address that the document gives to /me.
	about := must(must(api.NewClientWithResponses(origin, token)).MeWithResponse(ctx))
	said = append(said, about.JSON200.Caller)
	_ = json.NewEncoder(os.Stdout).Encode(said)
}
